"""The text that the model is tuned on: questions like WinoBias's, whose answers change.

It is the demo's: other sentences and other occupations than WinoBias's, in its form. Until `SWITCH`
the answer follows the pronoun; from then on most questions about women are answered "male".
"""

from logitbank.engine.demo.corpus import SWITCH_STEP, Example, training_texts

UPDATES = 40
SWITCH = 20
"""Updates made on balanced text; the checkpoint of this update is the last one without skew."""
EVERY = 5
SAVED = tuple(range(0, UPDATES + 1, EVERY))


def texts(update: int) -> tuple[Example, ...]:
    """The 16 texts of one update, counted from 0; the demo's own switch comes later."""
    return training_texts(update if update < SWITCH else SWITCH_STEP + update)
