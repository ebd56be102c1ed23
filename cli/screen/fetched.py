"""What was downloaded, in lines for people."""

import shlex
from typing import TYPE_CHECKING

from logitbank.cli.output import clean, print_lines, say
from logitbank.wording import counted, readable_bytes

if TYPE_CHECKING:
    from logitbank.engine.suites.fetch import Fetched


def print_fetched(done: "Fetched", *, suite: str | None, steps: str) -> None:
    """What is here and what failed, and the command that takes it offline."""
    for note in done.notes:
        say(f"[yellow]note[/yellow] {clean(note)}")
    for message in dict.fromkeys(done.failed.values()):
        whom = [str(c) for c, why in done.failed.items() if why == message]
        named = ", ".join(whom[:3]) + (f" and {len(whom) - 3:,} more" if len(whom) > 3 else "")
        say(f"[red]failed[/red] {clean(named)}: {clean(message)}")
    if done.prompts:
        print_lines([f"prompts are here: {', '.join(done.prompts)}"])
    total = len(done.folders) + len(done.failed)
    if suite is not None:
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
    if done.folders or suite is None:
        words = ["--suite", "SUITE" if suite is None else suite]
        words += ["--steps", steps] if steps != "all" else []
        for spec in done.prompts or ("FILE",):
            words += ["--prompts", spec]
        print_lines(
            [
                "offline, with the same home folder, HF_HOME and XDG_CACHE_HOME: "
                f"HF_HUB_OFFLINE=1 logitbank extract BANK {shlex.join(words)}"
            ]
        )
    if not done.prompts:
        print_lines(["a known prompt set needs its files there too: fetch --prompts NAME, here"])


def _are(number: int) -> str:
    return "is" if number == 1 else "are"
