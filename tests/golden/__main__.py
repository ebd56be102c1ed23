"""`python -m tests.golden [GROUP …] [--update]`: print how golden files differ, or write them.

Files are written only if they differ in more than the last bits of numbers.
"""

import sys

from tests.golden.runner import EXPECTED, NAMES, changed, differences, made, recorded


def main(*arguments: str) -> int:
    groups = [name for name in arguments if name != "--update"] or NAMES
    update = "--update" in arguments
    lines: list[str] = []
    for group in groups:
        expected, found = recorded(group), made(group)
        lines += differences(expected, found)
        for name in changed(expected, found) if update else ():
            path = EXPECTED / name
            if name in found:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(found[name])
            else:
                path.unlink()
    print("\n".join(lines))
    return 1 if lines and not update else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
