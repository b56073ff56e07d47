"""The page: five steps in one place, the next one always in sight."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

try:
    import altair as altair
    import streamlit as st
except ImportError:
    from feda4fair.errors import MissingExtraError

    raise MissingExtraError(
        "the dashboard is drawn with streamlit and altair, which are not installed; "
        "run pip install 'feda4fair[dashboard]'."
    ) from None

from feda4fair.dashboard import exporting, injecting, inspecting, loading, splitting
from feda4fair.dashboard.state import Session, Stopped, keep_widgets, plain, session
from feda4fair.dataset import Dataset
from feda4fair.errors import Feda4FairError

__all__ = ["STEPS", "page"]

_LOG = logging.getLogger(__name__)

STEPS: Final = ("Load", "Split", "Inject", "Inspect", "Export")

STYLE: Final = """<style>
.st-key-next {
  position: fixed; bottom: 0; left: 0; right: 0; z-index: 100; padding: 0.6rem 1.5rem;
  background: color-mix(in srgb, Canvas 92%, CanvasText 8%);
  border-top: 1px solid color-mix(in srgb, Canvas 70%, CanvasText 30%);
}
.stMainBlockContainer { max-width: 1200px; padding-top: 3rem; padding-bottom: 7rem; }
[data-testid="stMetricValue"] { font-size: 1.5rem; }
h1 { font-size: 1.9rem !important; }
</style>"""


def page(datasets: Sequence[Dataset], *, paths: bool = True) -> None:
    """Show the page as the session stands.

    Parameters
    ----------
    datasets : sequence of Dataset
        The built-in datasets that are offered.
    paths : bool, default True
        Whether visitors may name paths of the machine that serves the page.
    """
    st.set_page_config(page_title="FeDa4Fair", layout="wide")
    st.html(STYLE)
    keep_widgets()
    here = session()
    st.title("FeDa4Fair: design a fairness benchmark", anchor=False)
    bar = st.container(key="steps")
    _guarded(lambda: _show(here, datasets, paths=paths))
    with bar:
        _show_steps(here)
    _show_next(here)


def _show(here: Session, datasets: Sequence[Dataset], *, paths: bool) -> None:
    match STEPS[min(here.step, _reach(here))]:
        case "Load":
            loading.show(here, datasets, paths=paths)
        case "Split":
            splitting.show(here)
        case "Inject":
            injecting.show(here)
        case "Inspect":
            inspecting.show(here)
        case _:
            exporting.show(here, paths=paths)


def _guarded(show: Callable[[], None]) -> None:
    """Show a step; what goes wrong becomes a sentence on the page, never a traceback."""
    try:
        show()
    except Feda4FairError as error:
        st.error(plain(error))
    except Stopped:
        st.info("Stopped.")
    except MemoryError:
        st.error("There is not memory enough for this; load fewer rows or make fewer clients.")
    except Exception as error:
        _LOG.exception("the dashboard met an error that it does not know")
        st.error(
            f"Something happened that this page does not know ({type(error).__name__}); nothing "
            "was changed. Go a step back and choose otherwise; the terminal that serves the page "
            "says more."
        )


def _reach(here: Session) -> int:
    """Return the last step that can be shown: without rows and schema, only the first."""
    return len(STEPS) - 1 if here.rows is not None and here.base is not None else 0


def _go(step: int) -> None:
    session().step = step


def _show_steps(here: Session) -> None:
    """Show where one is, and the way to every step that is open."""
    shown, reach = min(here.step, _reach(here)), _reach(here)
    for step, (place, name) in enumerate(zip(st.columns(len(STEPS)), STEPS, strict=True)):
        place.button(
            f"{step + 1} {name}",
            key=f"step-{name}",
            type="primary" if step == shown else "secondary",
            disabled=step > reach,
            width="stretch",
            on_click=_go,
            args=(step,),
        )


def _show_next(here: Session) -> None:
    """Show below, whatever is scrolled, what is chosen so far and the next step."""
    shown, reach = min(here.step, _reach(here)), _reach(here)
    with st.container(key="next"):
        one, two = st.columns([3, 1], vertical_alignment="center")
        one.markdown(_summary(here))
        if shown + 1 < len(STEPS):
            two.button(
                f"Next: {STEPS[shown + 1]}",
                key="next-step",
                type="primary",
                disabled=shown + 1 > reach,
                width="stretch",
                on_click=_go,
                args=(shown + 1,),
            )
        else:
            two.button("Back: Load", key="next-step", width="stretch", on_click=_go, args=(0,))


def _summary(here: Session) -> str:
    """Return in a line what is chosen so far."""
    if here.rows is None:
        return "Begin with rows: choose where they come from and load them."
    if here.base is None:
        return f"{here.rows.count:,} rows. Say what the columns mean."
    try:
        recipe = here.recipe
    except Feda4FairError:
        return f"{here.rows.count:,} rows of {plain(here.base.dataset)}; see the message above."
    kind = "as in the benchmark" if here.is_benchmark else f"rules: {len(recipe.rules)}"
    partition = type(recipe.partition).__name__
    return f"**{plain(recipe)}**: {here.rows.count:,} rows, {partition}, {kind}."
