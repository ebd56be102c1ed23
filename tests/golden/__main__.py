"""`python -m tests.golden [GROUP …] [--update]`: say how golden files differ, or write them."""

import shutil
import sys

from tests.golden.runner import EXPECTED, MACHINE, NAMES, differences, kept, machine, made


def main(*arguments: str) -> int:
    groups = [name for name in arguments if name != "--update"] or NAMES
    update = "--update" in arguments
    if update and set(groups) == {*NAMES}:
        EXPECTED.mkdir(exist_ok=True)
        MACHINE.write_text(machine())
    elif update and machine() != MACHINE.read_text():
        print("The files are of another kind of machine; update all groups at once.")
        return 1
    lines: list[str] = []
    for group in groups:
        found = made(group)
        lines += differences(kept(group), found)
        if update:
            shutil.rmtree(EXPECTED / group, ignore_errors=True)
            for name, text in found.items():
                (EXPECTED / name).parent.mkdir(parents=True, exist_ok=True)
                (EXPECTED / name).write_text(text)
    print("\n".join(lines))
    return 1 if lines and not update else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
