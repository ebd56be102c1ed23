// Ranks what a search finds: guides come before the reference, and both before decisions, which say
// a word as often and answer nobody who looks for what to do. The numbers are Sphinx's own.
var Scorer = {
  score: ([page, title, anchor, description, score]) =>
    score * (page.startsWith("decisions/") ? 0.3 : /^(reference|worked-examples)\//.test(page) ? 0.8 : 1),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
