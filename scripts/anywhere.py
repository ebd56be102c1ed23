"""Run the quick tests as on other machines: instruction sets, cores, load, locale, order, those of
the engine with the oldest and the newest supported transformers, and those of store and analysis
with a newer Python, whose packages are newer too.

Each run is a process of its own, because libraries choose their instructions when they are loaded.
Every run has tests in a random order, random hashes of strings, the locale C and a time zone of
its own. `--seed N` repeats an order; other arguments are passed to pytest.
"""

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import install
import numpy as np

ROOT = Path(__file__).parents[1]
LOGS = ROOT / "build" / "anywhere"
QUICK = "not whole and not long"
NUMPY = "NPY_DISABLE_CPU_FEATURES"
FOUND = np.show_config("dicts")["SIMD Extensions"].get("found", [])  # type: ignore[call-overload]
"""NumPy's own kernels for instructions of this processor. They alone can be switched off."""
WIDE = [name for name in FOUND if name.startswith(("AVX512", "X86_V4"))]
AVX2 = {
    NUMPY: " ".join(WIDE),
    "OPENBLAS_CORETYPE": "Haswell",
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
}
PLAIN = {
    NUMPY: " ".join(FOUND),
    "OPENBLAS_CORETYPE": "Nehalem",
    "ATEN_CPU_CAPABILITY": "default",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
}
NICE = 10
"""Priority of the tests beside a busy loop, which has 0."""


@dataclass(frozen=True)
class Setting:
    """One run of the tests."""

    name: str
    time_zone: str
    threads: int = 1
    instructions: Mapping[str, str] = field(default_factory=dict)
    one_core: bool = False
    busy: bool = False
    transformers: str | None = None
    """Release with which the engine's tests run; otherwise all tests, with the installed one."""
    python: str | None = None
    """Python with which the tests of store and analysis run, in an environment without an engine.
    `UV_PYTHON` may name another one, or its path."""


OLDEST, NEWEST, PYTHON = "5.19.0", "5.24.0", "3.12"
WITHOUT_ENGINE = re.compile(r"(?!lm_eval|mypy|ray|ruff)[\w-]+")
"""Development packages of an environment without an engine."""
SETTINGS = (
    Setting("all instructions, 4 threads", "Pacific/Kiritimati", threads=4),
    Setting("AVX2, low priority beside a busy loop", "Asia/Kathmandu", 2, AVX2, busy=True),
    Setting("no vector instructions, one core", "America/St_Johns", 1, PLAIN, one_core=True),
    Setting(f"transformers {OLDEST}", "UTC", 2, transformers=OLDEST),
    Setting(f"transformers {NEWEST}", "UTC", 2, transformers=NEWEST),
    Setting(f"Python {PYTHON}, newer packages", "UTC", 2, python=PYTHON),
)


def environment(setting: Setting, seed: int) -> dict[str, str]:
    """The variables of a run; those of the caller that choose instructions are dropped."""
    kept = {name: value for name, value in os.environ.items() if name not in AVX2}
    if setting.transformers is not None:
        kept["PYTHONPATH"] = str(install_transformers(setting.transformers))
    return kept | setting.instructions | {
        "OMP_NUM_THREADS": str(setting.threads),
        "PYTHONHASHSEED": str(seed),
        "LOGITBANK_TEST_ORDER": str(seed),
        "LC_ALL": "C",
        "TZ": setting.time_zone,
    }  # fmt: skip


def install_transformers(release: str) -> Path:
    """A folder with this release alone, which goes before the installed one."""
    folder = LOGS / f"transformers-{release}"
    if not folder.exists():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
        subprocess.run([*command, folder, f"transformers=={release}"], check=True)
    return folder


def make_environment(python: str) -> Path:
    """The interpreter of an environment of this version, made by uv, with the source of today."""
    folder = LOGS / f"python-{python}"
    variables = os.environ | (install.uv() or {})
    variables.setdefault("UV_PYTHON", python)
    uv = [sys.executable, "-m", "uv"]
    if not folder.exists():
        subprocess.run([*uv, "venv", "--quiet", folder], env=variables, check=True)
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    named = [each for each in groups["dev"] if isinstance(each, str)]
    needed = [*(each for each in named if WITHOUT_ENGINE.match(each)), "tokenizers"]
    shutil.rmtree(ROOT / "build" / "lib", ignore_errors=True)  # modules of an earlier wheel
    command = [*uv, "pip", "install", "--quiet", "--python", folder / "bin" / "python"]
    command += ["--reinstall-package", "logitbank", f"{ROOT}[remote,xarray]", *needed]
    subprocess.run(command, env=variables | {"UV_PYTHON": ""}, check=True)
    return folder / "bin" / "python"


def run(setting: Setting, seed: int, arguments: Sequence[str], log: Path) -> tuple[int, str]:
    """Pytest's exit code and last line. What it prints is shown and kept in a log."""
    python = sys.executable if setting.python is None else make_environment(setting.python)
    command = [python, "-m", "pytest", "-n", "2", "--dist", "worksteal", "-m", QUICK]
    if setting.transformers is not None:
        command.append("tests/engine")
    if setting.python is not None:
        command += ["tests/store", "tests/analysis"]
    cores = sorted(os.sched_getaffinity(0))

    def prepare() -> None:
        if setting.one_core:
            os.sched_setaffinity(0, cores[:1])
        if setting.busy:
            os.nice(NICE)

    loop = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if setting.busy else None
    try:
        with log.open("w") as kept, subprocess.Popen(
            [*command, *arguments],
            cwd=ROOT,
            env=environment(setting, seed),
            preexec_fn=prepare,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="backslashreplace",
        ) as process:  # fmt: skip
            assert process.stdout is not None
            last = ""
            for last in process.stdout:
                print(last, end="", flush=True)
                kept.write(last)
        return process.returncode, last
    finally:
        if loop is not None:
            loop.kill()
            loop.wait()


def count(last: str, *words: str) -> int:
    """The number before one of these words in pytest's last line."""
    found = re.findall(rf"(\d+) (?:{'|'.join(words)})\b", last)
    return sum(map(int, found))


def main() -> int:
    """Run all settings and print a table. The exit code is 1 if a run failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--only", default="", help="settings whose names contain this text")
    known, arguments = parser.parse_known_args()
    LOGS.mkdir(parents=True, exist_ok=True)
    rows, codes = [], []
    chosen = [setting for setting in SETTINGS if known.only in setting.name]
    for number, setting in enumerate(chosen, 1):
        print(f"\nlogitbank: {setting.name}; --seed {known.seed}", flush=True)
        start = time.monotonic()
        code, last = run(setting, known.seed, arguments, LOGS / f"{number}.log")
        minutes = (time.monotonic() - start) / 60
        passed, failed = count(last, "passed"), count(last, "failed", "errors?")
        rows.append(f"{setting.name:<40}{passed:>7}{failed:>7}{minutes:>8.1f}")
        codes.append(code)
    print(f"\n{f'setting (--seed {known.seed})':<40} passed failed minutes", *rows, sep="\n")
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main())
