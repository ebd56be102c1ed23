"""Logits of plain transformers in float32, one text at a time. Run as a module.

Nothing of logitbank is imported. The texts come as JSON: a string, whose first mask is scored, or a
pair of strings for the next-sentence head.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForMaskedLM, AutoModelForPreTraining, AutoTokenizer


def main(model: str, texts: Path, out: Path) -> None:
    """Write one array of float32 logits for each text, under its number."""
    config = json.loads((Path(model) / "config.json").read_text())
    both_heads = config["architectures"] == ["BertForPreTraining"]
    kind = AutoModelForPreTraining if both_heads else AutoModelForMaskedLM
    network = kind.from_pretrained(model, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(model)
    found = {}
    for number, text in enumerate(json.loads(texts.read_text())):
        pair = [text] if isinstance(text, str) else text
        encoded = tokenizer(*pair, return_tensors="pt", return_token_type_ids=True)
        with torch.inference_mode():
            output = network(**encoded)
        if len(pair) == 2:
            logits = output.seq_relationship_logits[0]
        else:
            place = encoded["input_ids"][0].tolist().index(tokenizer.mask_token_id)
            logits = (output.prediction_logits if both_heads else output.logits)[0, place]
        found[str(number)] = logits.numpy()
    assert "logitbank" not in sys.modules
    np.savez(out, **found)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
