"""What was downloaded, in lines for people."""

import shlex
from typing import TYPE_CHECKING

from logitbank.cli.screen.tables import clean, print_lines, say
from logitbank.wording import counted, readable_bytes

if TYPE_CHECKING:
    from logitbank.engine.suites.fetch import Fetched


def print_fetched(done: "Fetched", *, suite: str, steps: str, legacy_weights: bool) -> None:
    """How many checkpoints are here, what failed, and the command that takes them offline."""
    for note in done.notes:
        say(f"[yellow]note[/yellow] {clean(note)}")
    for message in dict.fromkeys(done.failed.values()):
        whom = [str(c) for c, why in done.failed.items() if why == message]
        named = ", ".join(whom[:3]) + (f" and {len(whom) - 3:,} more" if len(whom) > 3 else "")
        say(f"[red]failed[/red] {clean(named)}: {clean(message)}")
    if done.untried:
        say(
            f"{counted(done.untried, 'more checkpoint')} not tried: nothing says that it would go"
            " better"
        )
    total = len(done.folders) + len(done.failed) + done.untried
    rate = readable_bytes(done.bytes / done.seconds) if done.seconds else "0 B"
    print_lines(
        [
            f"{len(done.folders):,} of {counted(total, 'checkpoint')} {_are(total)} here; "
            + (
                f"{readable_bytes(done.bytes)} came in {done.seconds:,.1f} s ({rate}/s)"
                if done.bytes > 0
                else "nothing had to be fetched"
            )
        ]
    )
    if done.failed:
        print_lines(["the same command goes on with what is left"])
    if done.folders:
        words = ["--suite", suite, *(["--steps", steps] if steps != "all" else [])]
        words += ["--legacy-weights"] if legacy_weights else []
        print_lines(
            [
                "offline, with the same HF_HOME: "
                f"HF_HUB_OFFLINE=1 logitbank extract BANK {shlex.join(words)} --prompts …"
            ]
        )


def _are(number: int) -> str:
    return "is" if number == 1 else "are"
