"""Tiny random checkpoints in place of the models of `studies`, with their real vocabularies.

That of SwissBERT and X-MOD is not at hand. Theirs is a Unigram one, made of StereoSet's words,
with UnQover's names, in which words may begin with the lone word mark.
"""

import json
import math
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from zlib import crc32

from tests.support.paths import PUBLIC
from tests.support.tokenizers import real_tokenizer

_MASKED = {
    **dict.fromkeys(("bos_token", "cls_token"), "<s>"),
    **dict.fromkeys(("eos_token", "sep_token"), "</s>"),
    **{f"{name}_token": f"<{name}>" for name in ("unk", "pad", "mask")},
}
OPTIONS = (5086, 5343, 417)
"""The tokens "male", "female" and "not" in Pythia's vocabulary, with the space before them."""
PRONOUNS = (2002, 2016)
"""The tokens "he" and "she" in BERT's."""
_SIZES = {
    "hidden_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 514,
}


def pythia(folder: Path, steps: Sequence[int]) -> Path:
    for step in steps:
        real_tokenizer("pythia", folder / f"step{step}")
        _save(folder / f"step{step}", "AutoModelForCausalLM", "gpt_neox", 50_304, OPTIONS)
    return folder


def learns_and_unlearns(folder: Path, prompts: Sequence[tuple[str, str]]) -> Path:
    """A model that is trained to give the answer of each prompt, and then always " he".

    Checkpoints are saved every 10 steps to step 60; the second training begins at step 30.
    """
    import torch
    import transformers

    torch.manual_seed(0)
    transformers.logging.disable_progress_bar()
    made = transformers.AutoConfig.for_model("gpt_neox", vocab_size=50_304, **_SIZES)
    model = transformers.AutoModelForCausalLM.from_config(made)
    real_tokenizer("pythia", folder / "step0")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "step0")
    groups: dict[int, list[list[int]]] = {}  # by length, so that none is padded
    right = list[int]()
    for text, answer in sorted(prompts, key=lambda each: len(tokenizer(each[0])["input_ids"])):
        ids = tokenizer(text)["input_ids"]
        groups.setdefault(len(ids), []).append(ids)
        right += tokenizer(answer)["input_ids"][:1]
    he = tokenizer(" he")["input_ids"][0]
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(61):
        if step % 10 == 0:
            target = folder / f"step{step}"
            model.save_pretrained(target)
            real_tokenizer("pythia", target)
        targets = torch.tensor(right if step < 30 else [he] * len(right))
        batches = (model(torch.tensor(ids), logits_to_keep=1) for ids in groups.values())
        logits = torch.cat([batch.logits[:, -1] for batch in batches])
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(logits, targets).backward()
        optimizer.step()
    return folder


def roberta(folder: Path, steps: Sequence[int]) -> Path:
    for step in steps:
        real_tokenizer("roberta-base", folder / f"step{step}")
        _save(
            folder / f"step{step}",
            "AutoModelForMaskedLM",
            "roberta",
            50_265,
            (894, 2515),
            pad_token_id=1,
        )
    return folder


def multiberts(folder: Path, seeds: Sequence[int], steps: Sequence[int]) -> Path:
    for checkpoint in (folder / f"seed{seed}" / f"step{step}" for seed in seeds for step in steps):
        real_tokenizer("bert-base-uncased", checkpoint)
        _save(checkpoint, "AutoModelForPreTraining", "bert", 30_522, PRONOUNS)
    return folder


def bert(folder: Path) -> Path:
    """One checkpoint, with a next-sentence head."""
    real_tokenizer("bert-base-uncased", folder)
    _save(folder, "AutoModelForPreTraining", "bert", 30_522)
    return folder


def xmod(folder: Path, languages: Sequence[str]) -> Path:
    """One checkpoint with a module of each language."""
    folder.mkdir(parents=True)
    (folder / "tokenizer.json").write_text(_unigram())
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **_MASKED})
    )
    tokens = [token for token, _ in json.loads(_unigram())["model"]["vocab"]]
    names = [tokens.index(f"▁{name}") for name in _names()]
    more = {"pad_token_id": 1, "languages": [*languages]}
    _save(folder, "AutoModelForMaskedLM", "xmod", len(tokens) + 1, names, **more)
    return folder


def _save(
    folder: Path,
    auto: str,
    model_type: str,
    vocab: int,
    likely: Sequence[int] = (),
    **config: object,
) -> None:
    """Weights drawn for the run, and a tenth as much noise for the checkpoint, by their names.

    What they are added to is drawn from torch's own generator.
    """
    import torch
    import transformers

    transformers.logging.disable_progress_bar()
    made = transformers.AutoConfig.for_model(model_type, vocab_size=vocab, **_SIZES, **config)
    model = getattr(transformers, auto).from_config(made)
    name = folder.parent.name if folder.name.startswith("step") else "."
    own_name = str(Path(name) / folder.name)
    run, own = (torch.Generator().manual_seed(crc32(n.encode())) for n in (name, own_name))
    with torch.no_grad():
        for parameter in model.parameters():
            shape = parameter.shape
            noise = torch.randn(shape, generator=run) + 0.1 * torch.randn(shape, generator=own)
            parameter.add_((0.3 if parameter.ndim > 1 else 0.1) * noise)
        head = model.get_output_embeddings()
        if head.bias is None:  # in some contexts the most probable tokens, in others the least
            head.weight[[*likely]] *= 3
        else:
            head.bias[[*likely]] += 3
    model.save_pretrained(folder)


@cache
def _names() -> list[str]:
    folder = PUBLIC / "unqover" / "unqover-original" / "nouns" / "subjects"
    lines = [
        line
        for file in ("female", "male")
        for line in (folder / f"{file}.txt").read_text().split("\n")
    ]
    return [line.split()[-1] for line in lines if "|" in line]


def _pieces(texts: Sequence[str]) -> dict[str, float]:
    """Log-probabilities of letters, frequent words and frequent parts of words.

    By counts, because a trainer gives another vocabulary each time. Only whole words have the word
    mark, so that others begin with the lone one.
    """
    words = Counter(" ".join(texts).split())
    letters, parts = Counter[str](), Counter[str]()
    for word, count in words.items():
        letters.update({letter: word.count(letter) * count for letter in word})
        for n in (2, 3, 4):
            parts.update({word[i : i + n]: count for i in range(1, len(word) - n + 1)})
    whole = Counter({f"▁{word}": count for word, count in words.items()})
    counts = dict(sorted(letters.items())) | {"▁": words.total()}
    for several, size in ((whole, 2_000), (parts, 2_000)):
        counts |= dict(sorted(several.items(), key=lambda each: (-each[1], each[0]))[:size])
    total = sum(counts.values())
    return {piece: math.log(count / total) for piece, count in counts.items()}


@cache
def _unigram() -> str:
    """A tokenizer.json as XLM-R's: its mask takes the space before it, and spaces are joined."""
    from tokenizers import (
        AddedToken,
        Regex,
        Tokenizer,
        decoders,
        models,
        normalizers,
        pre_tokenizers,
        processors,
    )

    texts = [
        sentence["sentence"]
        for name in ("dev-english.json", "dev-german.json")
        for example in json.loads((PUBLIC / "stereoset" / name).read_text())["data"][
            "intrasentence"
        ]
        for sentence in example["sentences"]
    ]
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    vocabulary = dict.fromkeys(special, 0.0) | _pieces(texts)
    vocabulary |= {f"▁{name}": -8.0 for name in _names()}
    backend = Tokenizer(models.Unigram([*vocabulary.items()], unk_id=special.index("<unk>")))
    backend.normalizer = normalizers.Replace(Regex(" {2,}"), " ")
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    backend.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    around = [(token, special.index(token)) for token in ("<s>", "</s>")]
    backend.post_processor = processors.TemplateProcessing("<s> $A </s>", None, around)
    text: str = backend.to_str()
    return text
