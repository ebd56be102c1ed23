"""Logits of plain transformers in float32, one text at a time. Run as a module.

Nothing of logitbank is imported: the texts come as JSON, a list of `[context, target]`. A target of
null asks for the next token after the context; an empty context for every token of the target,
after the begin-of-text token; else every token of the target is asked for, after the context.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def main(model: str, texts: Path, out: Path) -> None:
    """Write `logits` (rows, v) float32, and for each row `text` and the `token` that follows, or
    -1 where the text ends."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    logits, text, token = [], [], []
    for number, (context, target) in enumerate(json.loads(texts.read_text())):
        ids = tokenizer(context + (target or ""), add_special_tokens=False)["input_ids"]
        before = len(tokenizer(context, add_special_tokens=False)["input_ids"])
        if not context:
            ids, before = [tokenizer.bos_token_id, *ids], 1
        with torch.inference_mode():
            found = network(torch.tensor([ids])).logits[0].numpy()
        places = [before - 1] if target is None else range(before - 1, len(ids) - 1)
        for place in places:
            logits.append(found[place])
            text.append(number)
            token.append(-1 if target is None else ids[place + 1])
    assert "logitbank" not in sys.modules
    np.savez(out, logits=np.stack(logits), text=np.array(text), token=np.array(token))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
