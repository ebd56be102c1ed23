"""Flips of single bits in every kind of file, and what readers make of them: the truth, or no.

`python -m tests.support.flips FOLDER COUNT [SEED]` counts right and refused answers by kind of
file, and ends with 1 where one was wrong.
"""

import os
import random
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from logitbank.errors import LogitbankError
from logitbank.store import Bank, OptionTokens, rescore, verify
from logitbank.store.read.provenance import provenance_table
from logitbank.store.share.push import push
from logitbank.store.tables.prompt_tables import option_tokens
from tests.support.file_server import FileServer
from tests.support.small_banks import TOKENIZER, block_data, new_bank, spec, token_table

KINDS = {
    "source of the copy": r"\.source\.json",
    "index": r"index\.json\.gz",
    "bank's zarr.json": r"zarr\.json",
    "group's zarr.json": r"[^/]+(/[^/]+){0,2}/zarr\.json",
    "deposit's zarr.json": r".*/q-\w+/zarr\.json",
    "array's zarr.json": r".*/log\w+/zarr\.json",
    "commit of a block": r".*/commits/\d\.json",
    "seal": r".*/commits/seal\.json",
    "commit of options": r".*/commits/options-\w+\.json",
    "scores of a block": r".*/scores/\d\.parquet",
    "scores": r".*/scores/all\.parquet",
    "scores of options": r".*/scores/options-\w+\.parquet",
    "log-sum-exp": r".*/logsumexp/c/0",
    "rows": r".*/logprobs/c/\d/0",
    "query set": r"queries/.*\.parquet",
    "digest of a query set": r"queries/.*\.sha256",
    "prompts": r"prompts/.*\.parquet",
    "digest of prompts": r"prompts/.*\.sha256",
    "tokens": r"tokens/.*\.parquet",
    "digest of tokens": r"tokens/.*\.sha256",
}
PLACES = ("bank", "cache", "server")
READS = 8
"""Answers that are asked for after each flip, drawn from all."""
Answers = dict[str, Callable[[], object]]


@dataclass
class Tally:
    """What became of flips."""

    right: Counter[str] = field(default_factory=Counter)
    """Flips by kind of file after which every answer was the truth."""
    refused: Counter[str] = field(default_factory=Counter)
    """Those after which some were refused, and the others the truth."""
    wrong: list[str] = field(default_factory=list)
    """Answers that were other than the truth, or ended in another error."""


class Places:
    """One bank in a folder, and at a URL with its cache."""

    def __init__(self, folder: Path) -> None:
        os.environ["LOGITBANK_CACHE"] = str(folder / "cache")
        self.cache = folder / "cache"
        self.bank = _bank(folder / "bank").path
        self.www = folder / "www"
        push(self.bank, self.www / "bank")
        self.server = FileServer(self.www)
        self.url = f"{self.server.url}/bank"
        self._truth = {
            place: {name: read() for name, read in self._answers(place).items()} for place in PLACES
        }

    def close(self) -> None:
        self.server.close()

    def flip(self, place: str, count: int, *, seed: int = 0) -> Tally:
        """Flip `count` bits, one after the other, as many in each kind of file of a place."""
        files = self.files(place)
        chance, tally, kinds = random.Random(seed), Tally(), sorted(files)
        for case in range(count):
            kind = kinds[case % len(kinds)]
            file = chance.choice(files[kind])
            sound = file.read_bytes()
            at, bit = chance.randrange(len(sound)), chance.randrange(8)
            flipped = bytearray(sound)
            flipped[at] ^= 1 << bit
            file.write_bytes(flipped)
            try:
                what = f"{place}: {file}, byte {at}, bit {bit}"
                self._judge(place, kind, what, chance, tally)
            finally:
                file.write_bytes(sound)
        return tally

    def _judge(self, place: str, kind: str, what: str, chance: random.Random, tally: Tally) -> None:
        refused = False
        if place == "server":  # what is in the cache is not asked for again
            shutil.rmtree(self.cache)
        try:
            answers = self._answers(place)
        except LogitbankError:
            answers, refused = {}, True
        for name, read in chance.sample([*answers.items()], min(READS, len(answers))):
            try:
                if read() != self._truth[place][name]:
                    tally.wrong.append(f"{what}: {name} is another")
            except LogitbankError:
                refused = True
            except BaseException as error:  # such as a panic of Polars
                tally.wrong.append(f"{what}: {name} ends in {error!r}")
        (tally.refused if refused else tally.right)[kind] += 1

    def files(self, place: str) -> dict[str, list[Path]]:
        """Files by kind; every one of them is of one."""
        root = {"bank": self.bank, "server": self.www / "bank"}.get(place)
        root = next(self.cache.iterdir()) if root is None else root
        found: dict[str, list[Path]] = {}
        for file in sorted(p for p in root.rglob("*") if p.is_file() and p.stat().st_size):
            path = file.relative_to(root).as_posix()
            if path.endswith(".lock") or path == "README.md":  # for people alone
                continue
            (kind,) = (kind for kind, name in KINDS.items() if re.fullmatch(name, path))
            found.setdefault(kind, []).append(file)
        return found

    def _answers(self, place: str) -> Answers:
        """Everything that is asked, whole and in part."""
        bank = Bank.open(self.bank if place == "bank" else self.url, rows=True)
        return _of_tables(bank) | _of_scores(bank) | _of_rows(bank)


def _of_tables(bank: Bank) -> Answers:
    (query_set,) = bank.query_sets()
    return {
        "about": lambda: bank.attributes,
        "info": lambda: bank.info().rows(),
        "provenance": lambda: provenance_table(bank.deposits()).rows(),
        "prompt sets": lambda: bank.prompt_sets,
        "query sets": bank.query_sets,
        "prompts": lambda: bank.prompts("parity").collect().rows(),
        "a prompt": lambda: bank.prompts("parity").filter(row=9).select("text").collect().rows(),
        "texts of tokens": lambda: bank.tokens().rows(),
        "options with texts": lambda: bank.sql("SELECT token_text FROM options").collect().rows(),
        "named tokens": lambda: option_tokens(bank.path, query_set).tokens.tolist(),
    }


def _of_scores(bank: Bank) -> Answers:
    key = ("step", "row", "token")
    last = "SELECT step, logprob FROM scores WHERE prompt_id = 'p9' ORDER BY step, logprob"
    return {
        "scan": lambda: bank.scan("parity").sort(key).collect().rows(),
        "scan of a step": lambda: bank.scan("parity", steps=0).sort(key).collect().rows(),
        "one prompt": lambda: bank.scan("parity").filter(row=5).sort(key).collect().rows(),
        "query": lambda: bank.sql(last).collect().rows(),
        "scores": lambda: [d.scores().collect().rows() for d in bank.deposits()],
        "log-sum-exp": lambda: [d.logsumexp(range(8)).tobytes() for d in bank.deposits()],
        "one log-sum-exp": lambda: [d.logsumexp([7]).tobytes() for d in bank.deposits()],
    }


def _of_rows(bank: Bank) -> Answers:
    def rows(which: list[int], tokens: list[int] | None = None) -> Callable[[], object]:
        return lambda: [
            d.logprobs([row for row in which if row < d.rows_committed], tokens).tobytes()
            for d in bank.deposits()
        ]

    return {
        "rows": rows([*range(10)]),
        "a block": rows([4, 5, 6, 7]),
        "a part of the last block": rows([9]),
        "a token": rows([*range(10)], [3]),
        "a row and a token": rows([6], [5]),
    }


def _bank(path: Path) -> Bank:
    """Step 0 is sealed and has further options, of step 1 a block is missing."""
    bank = new_bank(path)
    bank.add_tokens(TOKENIZER, token_table())
    for step, blocks in ((0, 3), (1, 2)):
        with bank.begin(spec(step)) as writer:
            for block in range(blocks):
                writer.write(block, block_data(writer.layout, block, seed=step))
            writer.seal()
        if step == 0:
            rescore(writer.deposit, OptionTokens.build([[2, 5]] + [[]] * 9))
    assert verify(bank) == ()
    return bank


def main(folder: str, count: str, seed: str = "1") -> None:
    places, wrong = Places(Path(folder)), []
    for place, share in zip(PLACES, (0.6, 0.1, 0.2, 0.1), strict=True):
        tally = places.flip(place, round(int(count) * share), seed=int(seed))
        wrong += tally.wrong
        for kind in sorted({*tally.right, *tally.refused}):
            print(f"{place:8}{kind:24}{tally.right[kind]:6} right{tally.refused[kind]:6} refused")
    places.close()
    print(*wrong, f"{len(wrong)} wrong of {count}", sep="\n")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main(*sys.argv[1:])
