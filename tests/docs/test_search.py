"""What a search of the documentation ranks first, by the script that Sphinx is given for it."""

import pytest

from tests.support.browser import browser
from tests.support.paths import ROOT

SCORED = """(() => {
  const score = (page, matched) => Scorer.score([page, "", "", null, matched, ""]);
  return {
    guide: score("how-to/analyse", Scorer.term),
    reference: score("reference/python", Scorer.term),
    decision: score("decisions/003-publishing-a-block", Scorer.term),
    named: score("decisions/003-publishing-a-block", Scorer.title),
    mentioned: score("how-to/analyse", Scorer.partialTerm),
  };
})()"""


@pytest.mark.whole
def test_guides_are_ranked_before_decisions_that_say_a_word_as_often() -> None:
    with browser() as opened:
        page = opened.new_page()
        page.add_script_tag(path=ROOT / "docs" / "search_scorer.js")
        scores = page.evaluate(SCORED)
    assert scores["guide"] > scores["reference"] > scores["decision"]
    assert scores["named"] > scores["mentioned"], "a decision of that title is still found first"
