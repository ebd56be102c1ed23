"""Words that user texts avoid, as patterns, and what to write instead."""

AVOIDED = {
    r"told|tells?": "print, name, report, distinguish",
    r"says": "contains, reports, states",
    r"lends?": "provides",
    r"wander(s|ed|ing)?": "random walk",
    r"(?<!there )is no (bank|file|folder|gender|json|query|success|table|text|value)": "is not a",
    r"as it is": "unchanged",
    r"that they are": "a noun",
    r"goes on": "continues, resumes",
    r"whoever": "users, readers",
    r"serves? women": "higher error for women",
    r"the (former|latter)": "repeat the noun",
    r"in silence|without a word": "silently",
}
