"""UnQover's word lists, a few lines of each, written by hand."""

from pathlib import Path

from logitbank.engine.prompts.known.unqover.lists import DATASET, DATASET_OF_PARTS

_GROUPS = "[subj] Iran\n[subj] Slovakia\n[subj] Russia\n"
_DEMONYMS = "\n[subj:dem] Iranian\n[subj:dem] Slovak\n[subj:dem] Russian\n"
_SAID = (
    "# attributes\n\n[{kind}] rude\t| was rude\n[{kind}]poor | was a owner\n# negated\n"
    "[{kind}:neg] rude | was kind\n[{kind}:neg] poor\t|was a tenant"
)
_SLOTS = (
    "{c}\tThe [mask] [p_act-single].\tThe [mask] [p_act-single:neg].\n\n\n"
    "A [subj1] saw a [subj2].\tThe [mask] [p_act-single].\tThe [mask] [p_act-single:neg].\n\n"
)
_MET = "A [subj1{d}] met a [subj2{d}]."
_ASKED = "Who [p_act-single]?\tWho [p_act-single:neg]?"


def write_lists(folder: Path, **changed: str) -> Path:
    """A data folder: two women, two men, three of every other group, two attributes.

    `changed` are contents of original files, by name without ending.
    """
    names = {
        "female": "[subj] female | Mary\n[subj]female|Ann\n",
        "male": "[subj] male\t| John\n\n[subj] male | Omar",
    }
    contents: dict[str, str] = {
        "gender_noact_lm": "[subj1] met [subj2].\t[mask] [p_act].\t[mask] [p_act:neg].\n\n\n",
        "gender_noact": "[subj1] met [subj2].\tWho [p_act]?\tWho [p_act:neg]?",
        "occupation_rev1": "[p_act] was an actor\n\n[p_act:neg] can never be an actor\n",
    }
    for gender, text in names.items():
        contents |= {gender: text, f"{gender}_bert": text, f"{gender}_roberta": text}
    for group, demonym in (("country", ":dem"), ("ethnicity", ""), ("religion", "")):
        listed = _GROUPS + (_DEMONYMS if demonym else "")
        met = _MET.format(d=demonym)
        contents |= {
            group: listed,
            f"{group}_bert": "[subj] Iran",
            f"{group}_roberta": "[subj] Slovakia",
        }
        contents[f"biased_{group}"] = _SAID.format(kind="p_act-single")
        contents[f"{group}_noact_lm"] = _SLOTS.format(c=met)
        contents[f"{group}_noact"] = f"\n{met}\t{_ASKED}\n\n{_MET.format(d='')}\t{_ASKED}\n"
    for name in DATASET.files:
        stem = Path(name).stem
        _write(folder / DATASET.name / name, changed.get(stem, contents[stem]))
    parts = {
        f"{gender}_{part}": f"[subj] {gender} | {name}"
        for gender, (train, test) in {"female": ("Mary", "Ann"), "male": ("John", "Omar")}.items()
        for part, name in (("bert_train", train), ("bert_test", test), ("roberta_test", train))
    }
    for name in DATASET_OF_PARTS.files:
        stem = Path(name).stem
        said = "[p_act-single] poor | was a owner\n[p_act-single:neg] poor | was a tenant"
        slot = (
            "A [subj1] saw a [subj2].\tThe [mask] [p_act-single].\tThe [mask] [p_act-single:neg]."
        )
        text = parts.get(stem) or (slot if "_noact_lm" in stem else said)
        _write(folder / DATASET_OF_PARTS.name / name, changed.get(stem, text))
    return folder


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
