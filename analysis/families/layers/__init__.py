"""Layers: after which of them the right option is the first, by a logit lens."""

from typing import TYPE_CHECKING

from logitbank.analysis.family import Drawing, Family, any_prompts, columns

if TYPE_CHECKING:
    from logitbank.analysis.families.layers.metric import Layers


def family() -> "Family[Layers]":
    """The family, with all that belongs to it."""
    from logitbank.analysis.families.layers.message import layers_message
    from logitbank.analysis.families.layers.metric import Layers
    from logitbank.analysis.families.layers.study import (
        CAUTIONS,
        keeps_layers,
        layer_figure_data,
        layer_sheets,
        layers,
    )

    return Family(
        name="layers",
        title="Layers",
        place=11,
        asks=(
            "Where in the model, and when in its training, the right option becomes the first: "
            "what the head would say of the states after each layer."
        ),
        cautions=CAUTIONS,
        result=Layers,
        prompts=any_prompts,
        needs=keeps_layers,
        # A report asks options of one token alone: others take products with the whole head.
        study=lambda banks, prompts, models, bootstrap: layers(
            banks[0], prompts=prompts, models=models, several_tokens=False
        ),
        drawing=Drawing(layer_figure_data, layer_sheets),
        brief={
            "settled": columns("prompt_set prompts settled layer last"),
            "layers": columns("prompt_set layer prompts first low high logprob"),
        },
        message=layers_message,
    )
