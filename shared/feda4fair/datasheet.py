"""A datasheet for each config: what a program knows, what a person wrote, and what is missing.

References
----------
Gebru and others (2021), Datasheets for Datasets, Communications of the ACM 64 (12). The questions
are theirs, in other words.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import jinja2

from feda4fair import answers
from feda4fair.facts import ConfigFacts, Facts

__all__ = ["QUESTIONS", "Question", "Section", "environment", "render_datasheet", "unanswered"]

TAG = re.compile(r"<(?!br>)(?=[A-Za-z/!?])")
UNSEEN = frozenset({"Cc", "Cs"})

Answer = Callable[[Facts, ConfigFacts], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question, the key under which a person answers it, and what a program can say.

    Parameters
    ----------
    key : str
        A person's answer is ``datasheet.<key>`` of ``prose.toml``, or for a whole section's text
        the key of that text, such as ``motivation``.
    text : str
        The question.
    computed : callable
        ``computed(facts, config) -> text``; empty where the program knows nothing.
    """

    key: str
    text: str
    computed: Answer = lambda facts, config: ""

    def answer(self, facts: Facts, config: ConfigFacts) -> str:
        """Return what is known, first what a person wrote; empty if nothing is."""
        written = facts.prose.get("datasheet", {}).get(self.key) or facts.prose.get(self.key, "")
        parts = [str(written).strip(), self.computed(facts, config).strip()]
        return "\n\n".join(part for part in parts if part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A section of the datasheet."""

    title: str
    questions: tuple[Question, ...]


def render_datasheet(facts: Facts, config: ConfigFacts) -> str:
    """Return the datasheet of a config as Markdown text.

    Parameters
    ----------
    facts : Facts
        What the built folder says.
    config : ConfigFacts
        The config.
    """
    text = _template().render(
        title=facts.prose.get("title", facts.manifest["dataset"]),
        manifest=facts.manifest,
        config=config,
        unanswered=unanswered(facts, config),
        sections=[
            {
                "title": section.title,
                "questions": [
                    {"text": question.text, "answer": question.answer(facts, config)}
                    for question in section.questions
                ],
            }
            for section in QUESTIONS
        ],
    )
    return text.strip() + "\n"


@cache
def _template() -> jinja2.Template:
    return environment().get_template("datasheet.md.j2")


def environment() -> jinja2.Environment:
    """Return the environment in which pages are rendered."""
    return jinja2.Environment(
        loader=jinja2.PackageLoader("feda4fair.cards", ""),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
        finalize=_inert,
    )


def _inert(value: Any) -> Any:
    """Return a text without what a page would take for a tag, and without unseen characters.

    Names and descriptions come from recipes and tables of whomever.
    """
    if not isinstance(value, str):
        return value
    text = re.sub(r"\r\n?", "\n", value)
    text = "".join(c for c in text if c in "\n\t" or unicodedata.category(c) not in UNSEEN)
    return TAG.sub("&lt;", text)


def unanswered(facts: Facts, config: ConfigFacts) -> list[str]:
    """Return the questions that neither a program nor a person has answered."""
    return [
        question.text
        for section in QUESTIONS
        for question in section.questions
        if not question.answer(facts, config)
    ]


QUESTIONS: tuple[Section, ...] = (
    Section(
        title="Motivation",
        questions=(
            Question(
                key="motivation", text="What was the dataset made for, and which gap does it fill?"
            ),
            Question(key="creators", text="Who made it, and on whose behalf?"),
            Question(key="funding", text="Who paid for it?"),
            Question(
                key="motivation_more",
                text="Is there more to say on why it was made?",
                computed=answers.citation,
            ),
        ),
    ),
    Section(
        title="Composition",
        questions=(
            Question(
                key="composition", text="What does one row stand for, and are there several kinds?"
            ),
            Question(
                key="count", text="How many rows are there, of each kind?", computed=answers.rows
            ),
            Question(
                key="sample",
                text="Is this all there is, or a sample of something larger that it represents?",
                computed=answers.sample,
            ),
            Question(key="content", text="What does a row consist of?", computed=answers.content),
            Question(
                key="label", text="Does a row have a label or target?", computed=answers.label
            ),
            Question(
                key="missing",
                text="Is anything missing from rows, and why?",
                computed=answers.missing,
            ),
            Question(
                key="relations",
                text="Are relations between rows made explicit?",
                computed=answers.relations,
            ),
            Question(
                key="splits",
                text="Which splits are recommended, and why?",
                computed=answers.recommended_splits,
            ),
            Question(
                key="noise",
                text="Which errors, noise or repetitions are there?",
                computed=answers.noise,
            ),
            Question(
                key="self_contained",
                text="Do the files stand alone, or do they rely on something outside?",
                computed=answers.self_contained,
            ),
            Question(key="confidential", text="Is anything confidential in it?"),
            Question(
                key="offensive", text="May anything in it offend, threaten or upset someone?"
            ),
            Question(
                key="subpopulations",
                text="Does it tell groups of people apart, and how are they distributed?",
                computed=answers.groups,
            ),
            Question(
                key="identification",
                text="Can a person be identified from it, directly or with other data?",
            ),
            Question(
                key="sensitive",
                text="Does it hold data that are sensitive in some way?",
                computed=answers.sensitive,
            ),
            Question(
                key="composition_more",
                text="Is there more to say on its composition?",
                computed=answers.measured,
            ),
        ),
    ),
    Section(
        title="Collection process",
        questions=(
            Question(key="collection", text="How were the data of a row obtained?"),
            Question(
                key="mechanisms",
                text="With which instruments were they collected, and were these checked?",
            ),
            Question(
                key="sampling",
                text="If it is a sample, how was it drawn?",
                computed=answers.dealt,
            ),
            Question(key="collectors", text="Who collected them, and how were they paid?"),
            Question(key="timeframe", text="Over what time were they collected?"),
            Question(key="review", text="Was there an ethical review?"),
            Question(
                key="directness",
                text="Do they come from the people themselves or from somewhere else?",
            ),
            Question(key="notice", text="Did the people know that data were collected?"),
            Question(key="consent", text="Did they agree to the collection and to this use?"),
            Question(key="revocation", text="Can they take their consent back?"),
            Question(key="impact", text="Was the effect on the people analyzed?"),
            Question(
                key="collection_more",
                text="Is there more to say on the collection?",
                computed=answers.sources,
            ),
        ),
    ),
    Section(
        title="Preprocessing, cleaning, labeling",
        questions=(
            Question(
                key="preprocessing",
                text="What was done to the data before release?",
                computed=answers.injection,
            ),
            Question(key="raw", text="Are the raw data kept as well?", computed=answers.raw),
            Question(
                key="software",
                text="Is the software that did it available?",
                computed=answers.software,
            ),
            Question(
                key="preprocessing_more",
                text="Is there more to say on the processing?",
                computed=answers.ledger,
            ),
        ),
    ),
    Section(
        title="Uses",
        questions=(
            Question(key="used", text="What has it been used for already?"),
            Question(key="papers", text="Is there a place that lists works that use it?"),
            Question(key="other_uses", text="What else could it be used for?"),
            Question(
                key="effects",
                text="Does anything in its composition or processing bear on future uses?",
                computed=answers.effects,
            ),
            Question(key="uses", text="What should it be used for, and what not?"),
            Question(
                key="ethics", text="Is there more to say on its use?", computed=answers.limits
            ),
        ),
    ),
    Section(
        title="Distribution",
        questions=(
            Question(key="distribution", text="Is it given to others outside of the project?"),
            Question(
                key="form",
                text="In which form is it given, and has it an identifier?",
                computed=answers.form,
            ),
            Question(key="released", text="When is it given?", computed=answers.version),
            Question(key="license_text", text="Under which license or terms?"),
            Question(key="third_party", text="Do third parties restrict it?"),
            Question(key="export", text="Do export controls or other rules apply?"),
            Question(
                key="distribution_more",
                text="Is there more to say on its distribution?",
                computed=answers.hashes,
            ),
        ),
    ),
    Section(
        title="Maintenance",
        questions=(
            Question(key="maintenance", text="Who looks after it?"),
            Question(key="contact", text="How can they be reached?"),
            Question(key="erratum", text="Is there a list of errors?"),
            Question(key="updates", text="Will it be updated, by whom, and how is that told?"),
            Question(
                key="retention", text="Are there limits on how long data on people are kept?"
            ),
            Question(key="old_versions", text="Are older versions kept?"),
            Question(key="contributions", text="Can others extend it, and how?"),
            Question(
                key="maintenance_more",
                text="Is there more to say on its maintenance?",
                computed=answers.software,
            ),
        ),
    ),
)
"""The seven sections and their questions."""
