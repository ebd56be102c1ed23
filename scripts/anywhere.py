"""Run the numerical tests with other instruction sets and thread counts, as on other processors.

The last bit of a sum depends on the order of addition, and that on the processor. Tests marked
`numerical` must hold for any order. Each run is a process of its own, because libraries choose
their instructions when they are loaded. Arguments are passed to pytest.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
MARK = "pytest.mark.numerical"
SELECTED = "numerical and not vllm and not gpu"
AVX2 = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "DNNL_MAX_CPU_ISA": "AVX2",
    "OPENBLAS_CORETYPE": "Haswell",
}
ALL: dict[str, str] = {}
NEITHER = {**AVX2, "ATEN_CPU_CAPABILITY": "default"}
RUNS = (
    ("all instructions", ALL, 1),
    ("AVX2", AVX2, 1),
    ("AVX2, ATen default", NEITHER, 1),
    ("all instructions", ALL, 4),
    ("AVX2, ATen default", NEITHER, 4),
)
VARIABLES = (*AVX2, "OMP_NUM_THREADS")


def files() -> list[str]:
    """Test files with a numerical test; the others need not be collected."""
    tests = sorted((ROOT / "tests").rglob("test_*.py"))
    marked = [str(path.relative_to(ROOT)) for path in tests if MARK in path.read_text()]
    assert marked, "no test is marked numerical"
    return marked


def run(chosen: dict[str, str], arguments: list[str], *, processes: int) -> int:
    """Pytest's exit code with only these variables set."""
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    pytest = ["-m", "pytest", "-q", "-n", str(processes), "--dist", "worksteal", "-m", SELECTED]
    command = [sys.executable, *pytest, *files(), *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment | chosen).returncode


def main() -> None:
    """Run all, and print a table. The exit code is 1 if a run failed."""
    rows = []
    for name, instructions, threads in RUNS:
        chosen = {**instructions, "OMP_NUM_THREADS": str(threads)}
        what = f"{name}, {threads} thread{'s' * (threads > 1)}"
        print(f"\nlogitbank: {what}: {' '.join(f'{k}={v}' for k, v in chosen.items())}")
        sys.stdout.flush()
        start = time.monotonic()
        code = run(chosen, sys.argv[1:], processes=2 if threads == 1 else 0)
        rows.append((what, code, time.monotonic() - start))
    print()
    for what, code, seconds in rows:
        print(f"{'passed' if code == 0 else f'FAILED ({code})':<12}{seconds:6.0f} s  {what}")
    print(f"{sum(seconds for *_, seconds in rows) / 60:.1f} minutes, {len(files())} files")
    sys.exit(int(any(code for _, code, _ in rows)))


if __name__ == "__main__":
    main()
