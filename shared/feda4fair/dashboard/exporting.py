"""Step 5, Export: the folder, its recipe, its datasheet, the same in Python, and a dry run."""

from __future__ import annotations

import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import streamlit as st

from feda4fair.dashboard.rows import Rows, Tick
from feda4fair.dashboard.state import KEEP, Session, Stopped, plain, result, start, watch
from feda4fair.errors import OutputError, PublishError
from feda4fair.hub import plan
from feda4fair.recipe import Recipe
from feda4fair.release import Consent

__all__ = ["Exported", "export", "show"]

Form = Literal["full", "index"]

MOST_ZIP: Final = 500_000_000
"""Largest zip that is handed to a browser, in bytes; larger folders are written to a path."""

EPOCH: Final = (1980, 1, 1, 0, 0, 0)
"""Date of every file in a zip, so that the same files give the same zip."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """A folder that was written for this session, and its zip.

    Parameters
    ----------
    folder : Path
        The folder in Hub layout.
    archive : Path or None
        Its zip; None where it would be too large for a browser.
    size : int
        Bytes of all files.
    """

    folder: Path
    archive: Path | None
    size: int


def show(here: Session, *, paths: bool) -> None:
    """Show the step; what was made stays until a choice changes, whatever is clicked."""
    st.subheader("Export: take it away")
    rows, recipe = here.rows, here.recipe
    assert rows is not None, "the step is open once there are rows"
    form = _form(here)
    name = f"{recipe.dataset}-{recipe.name}"
    one, two, three = st.columns(3)
    with one:
        files = _asked("Prepare the files", "prepare", rows, recipe, form)
    with two:
        tables = _asked("Prepare a CSV for each client", "csv", rows, recipe, "full")
    three.download_button(
        "Recipe (JSON)",
        recipe.to_json(),
        f"{name}.json",
        "application/json",
        key="recipe",
        on_click="ignore",
    )
    if files:
        found = result(
            f"export {form}",
            recipe,
            "Writing the files",
            lambda tick: export(rows, recipe, here.folder, form, tick),
        )
        if found is not None:
            _show_files(found, recipe, name)
            _show_dry_run(here, found, recipe)
    if tables:
        made = result(
            "export csv",
            recipe,
            "Writing a CSV for each client",
            lambda tick: export(rows, recipe, here.folder, "csv", tick),
        )
        if made is not None:
            _show_tables(made, name)
    if paths:
        _show_folder(rows, recipe, form, name)
    st.markdown("**The same in Python**")
    st.code(rows.script(recipe, f"build/{name}", form=form), language="python")
    st.caption(
        "Or on the command line: build.py --recipe with the JSON, and --source with the rows."
    )


def _asked(label: str, key: str, rows: Rows, recipe: Recipe, form: Form) -> bool:
    """Show a button, and tell whether it was clicked for the choices as they are."""
    choices = [rows.content, recipe.to_json(), form]
    wanted = f"{KEEP}wanted-{key}"
    if st.button(label, type="primary" if key == "prepare" else "secondary", key=key):
        st.session_state[wanted] = choices
    return bool(st.session_state.get(wanted) == choices)


def _form(here: Session) -> Form:
    dataset = here.rows.opening.dataset if here.rows else None
    if dataset is None or dataset.index is None:
        return "full"
    kind = st.radio(
        "Form",
        ["full", "index"],
        format_func={"full": "Full rows, for local use", "index": "Index, to publish"}.get,
        horizontal=True,
        key=f"{KEEP}form",
        help="Rows of this source may not be redistributed; the index may.",
    )
    return "index" if kind == "index" else "full"


def export(
    rows: Rows, recipe: Recipe, folder: Path, kind: Literal["full", "index", "csv"], tick: Tick
) -> Exported:
    """Write a federation and its zip into the folder of a session, in place of an earlier one.

    Parameters
    ----------
    rows : Rows
        The rows.
    recipe : Recipe
        What is made of them.
    folder : Path
        Temporary folder of the session.
    kind : {"full", "index", "csv"}
        The folder in Hub layout, with its rows or with the index that may be published; or one
        CSV file for each client.
    tick : callable
        Says how far it is.
    """
    place = folder / ("csv" if kind == "csv" else "export")
    shutil.rmtree(place, ignore_errors=True)
    name = f"{recipe.dataset}-{recipe.name}"
    out = place / name
    if kind == "csv":
        rows.write_csv(recipe, out, tick)
    else:
        rows.write(recipe, out, tick, form=kind)
    files = sorted(path for path in out.rglob("*") if path.is_file())
    size = sum(path.stat().st_size for path in files)
    if size > MOST_ZIP:
        return Exported(folder=out, archive=None, size=size)
    archive = place / f"{name}.zip"
    how = zipfile.ZIP_DEFLATED if kind == "csv" else zipfile.ZIP_STORED
    with zipfile.ZipFile(archive, "w", how) as packed:
        for done, path in enumerate(files):
            tick("packing", done / len(files))
            entry = zipfile.ZipInfo(f"{name}/{path.relative_to(out).as_posix()}", EPOCH)
            entry.external_attr = 0o644 << 16
            packed.writestr(entry, path.read_bytes(), how)
    return Exported(folder=out, archive=archive, size=size)


def _show_files(found: Exported, recipe: Recipe, name: str) -> None:
    st.success(
        f"Ready: {found.size:,} bytes in Hub layout, with card, datasheet, statistics and recipe."
    )
    one, two, three = st.columns(3)
    with one:
        _show_zip("Folder (zip)", found, f"{name}.zip", "zip")
    sheet = found.folder / "datasheets" / f"{recipe.name}.md"
    two.download_button(
        "Datasheet",
        sheet.read_text("utf-8"),
        f"{name}-datasheet.md",
        "text/markdown",
        key="sheet",
        on_click="ignore",
    )
    card = found.folder / "README.md"
    three.download_button(
        "Dataset card",
        card.read_text("utf-8"),
        f"{name}-card.md",
        "text/markdown",
        key="card",
        on_click="ignore",
    )
    with st.expander("Read the datasheet"):
        st.code(sheet.read_text("utf-8"), language=None, wrap_lines=True, height=400)


def _show_zip(label: str, found: Exported, name: str, key: str) -> None:
    """Show the download of a zip, or why there is none."""
    if found.archive is None:
        st.caption(f"More than {MOST_ZIP // 10**6} MB, too large for a browser.")
        return
    st.download_button(
        label, found.archive.read_bytes, name, "application/zip", key=key, on_click="ignore"
    )


def _show_tables(found: Exported, name: str) -> None:
    st.success(f"Ready: {found.size:,} bytes, one CSV for each client, without index columns.")
    _show_zip("CSV for each client (zip)", found, f"{name}-csv.zip", "csv-zip")


def _show_dry_run(here: Session, found: Exported, recipe: Recipe) -> None:
    """Show what publishing would do; nothing is sent."""
    with st.expander("Publish: dry run", expanded=True):
        repo_id = st.text_input(
            "Repository", key=start(f"{KEEP}repo", f"ORG/{recipe.dataset}"), help="ORG/NAME"
        )
        accept = st.checkbox(
            "I have settled that these rows may be published (--accept-terms)",
            key=f"{KEEP}accept",
        )
        private = st.checkbox("To a private repository (--private)", key=f"{KEEP}private")
        if not st.button("Show the plan", key="plan"):
            return
        rows = here.rows
        index_only = bool(rows and rows.opening.dataset and rows.opening.dataset.index)
        consent = Consent(accept_terms=accept, closed=private)
        with st.spinner("Reading the repository; nothing is sent …"):
            try:
                made = plan(found.folder, repo_id, consent=consent, index_only=index_only)
            except (PublishError, OutputError) as error:
                st.error(plain(str(error).replace(f"{found.folder}", found.folder.name)))
                return
        st.code(made.describe(), language=None)


def _show_folder(rows: Rows, recipe: Recipe, form: Form, name: str) -> None:
    with st.expander("Write to a folder of this machine"):
        path = st.text_input("Folder", placeholder=f"build/{name}", key=f"{KEEP}out")
        overwrite = st.checkbox("Replace an earlier build there", key=f"{KEEP}overwrite")
        asked = st.button("Write the folder", key="write")
        done = f"{KEEP}written"
        if asked and not path.strip():
            raise OutputError("no folder is named; type one that is new or empty.")
        if asked:
            out = Path(path.strip()).expanduser()
            st.session_state[done] = _write(rows, recipe, out, form, overwrite=overwrite)
        if st.session_state.get(done):
            st.success(plain(st.session_state[done]))


def _write(rows: Rows, recipe: Recipe, out: Path, form: Form, *, overwrite: bool) -> str:
    def work(tick: Tick) -> None:
        rows.write(recipe, out, tick, form=form, overwrite=overwrite)

    try:
        watch("Writing the folder", work)
    except Stopped:
        return ""
    return f"Written: {out}"
