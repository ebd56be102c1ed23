"""Teach a tiny checkpoint some continuations, so that it gets them right and others wrong."""

from collections.abc import Sequence
from pathlib import Path


def learn(
    folder: Path, texts: Sequence[tuple[str, str]], *, steps: int, rate: float = 1e-2
) -> None:
    """Train the causal checkpoint in `folder`, in place, to continue each first text by its second.

    The loss is that of the second text's tokens alone, and so is the work of the output layer.
    """
    import torch
    from torch.nn.functional import cross_entropy
    from torch.nn.utils.rnn import pad_sequence
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = [torch.tensor(tokenizer.encode(context + target)) for context, target in texts]
    starts = [len(tokenizer.encode(context)) for context, _ in texts]
    rows = torch.tensor([i for i, start in enumerate(starts) for _ in ids[i][start:]])
    places = torch.tensor([t for i, start in enumerate(starts) for t in range(start, len(ids[i]))])
    batch = pad_sequence(ids, batch_first=True)  # padding comes after all that is scored
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(folder)
    head = model.get_output_embeddings()
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    for _ in range(steps):
        hidden = model.base_model(batch).last_hidden_state
        loss = cross_entropy(head(hidden[rows, places - 1]), batch[rows, places])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.save_pretrained(folder)
