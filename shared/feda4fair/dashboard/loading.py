"""Step 1, Load: rows from a built-in dataset, a path, an upload or the Hub, and what they mean."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Any, Final

import pyarrow as pa
import streamlit as st

from feda4fair.columns import Value
from feda4fair.dashboard import UPLOAD_MB
from feda4fair.dashboard.opening import Opening
from feda4fair.dashboard.rows import Rows, Tick, open_builtin, open_own
from feda4fair.dashboard.state import KEEP, Session, Stopped, plain, start, watch
from feda4fair.dataset import Dataset
from feda4fair.errors import Feda4FairError, SchemaError, SourceError
from feda4fair.partition import Iid
from feda4fair.recipe import Recipe
from feda4fair.schema import Schema

__all__ = ["show", "upload_name"]

KINDS: Final = ("csv", "tsv", "parquet", "json", "jsonl")
PREVIEW: Final = 20
BUILT_IN, PATH, UPLOAD, HUB = "Built-in dataset", "Path", "Upload", "Hugging Face Hub"
SAMPLE, FOLDER, DOWNLOAD = "Synthetic sample", "Folder of source files", "Download, then cached"


def show(here: Session, datasets: Sequence[Dataset], *, paths: bool) -> None:
    """Show the step.

    Parameters
    ----------
    here : Session
        What is chosen.
    datasets : sequence of Dataset
        The built-in datasets.
    paths : bool
        Whether paths of the server's machine may be typed.
    """
    st.subheader("Load: which rows?")
    kinds = [BUILT_IN, *([PATH] if paths else []), UPLOAD, HUB]
    kind = st.radio("Rows from", kinds, horizontal=True, key=f"{KEEP}from")
    match kind:
        case "Built-in dataset":
            _choose_builtin(here, datasets, paths=paths)
        case "Path":
            _choose_path(here)
        case "Upload":
            _choose_upload(here)
        case _:
            _choose_hub(here)
    _load(here)
    if here.rows is not None:
        _show_rows(here.rows)
        if here.rows.base is None:
            _choose_schema(here, here.rows)
        else:
            _show_schema(here.rows.base)


def _choose_builtin(here: Session, datasets: Sequence[Dataset], *, paths: bool) -> None:
    one, two, three = st.columns(3)
    named = {dataset.name: dataset for dataset in datasets}
    name = one.selectbox(
        "Dataset",
        list(named),
        format_func=lambda name: str(named[name].prose["title"]),
        key=f"{KEEP}dataset",
    )
    dataset = named[name]
    config = two.selectbox(
        "Start from the config",
        [recipe.name for recipe in dataset.recipes],
        help="Its schema, clients and rules can be changed in the next steps.",
        key=f"{KEEP}config-{name}",
    )
    origins = [SAMPLE, *([FOLDER] if paths else [])]
    origins += [] if dataset.index else [DOWNLOAD]
    origin = three.selectbox("Rows", origins, key=f"{KEEP}origin-{name}")
    folder = ""
    if origin == FOLDER:
        folder = st.text_input(
            "Folder",
            key=f"{KEEP}folder-{name}",
            help="The source's own layout, as scripts/build.py --source takes it.",
        )
    if st.button("Load rows", type="primary", key="load"):
        if origin == FOLDER and not folder.strip():
            raise SourceError("no folder is named; type the folder of the source files.")
        here.pending = Opening(
            data=folder.strip(), dataset=dataset, sample=origin == SAMPLE, config=config
        )


def _choose_path(here: Session) -> None:
    path = st.text_input(
        "Path of a file or folder on the machine that serves this page",
        key=f"{KEEP}path",
        help="Parquet, CSV, TSV or JSON; a folder of Parquet files; a folder of images. Only "
        "this path is read.",
    )
    if st.button("Load rows", type="primary", key="load"):
        name = path.strip()
        if not name or not Path(name).expanduser().exists():
            raise SourceError(f"{name or 'path'}: no such file or folder; type one that exists.")
        here.pending = Opening(data=name)


def _choose_upload(here: Session) -> None:
    upload = st.file_uploader(
        f"A table, at most {UPLOAD_MB} MB; larger ones are loaded by their path",
        type=list(KINDS),
        max_upload_size=UPLOAD_MB,
        key="upload",
    )
    if st.button("Load rows", type="primary", key="load", disabled=upload is None):
        assert upload is not None, "the button waits for a file"
        path = here.folder / upload_name(upload.name)
        path.write_bytes(upload.getbuffer())
        here.pending = Opening(data=str(path), name=path.name)


def upload_name(name: str) -> str:
    """Return the name under which an upload is kept: no folders, plain letters, a known suffix.

    Raises
    ------
    SourceError
        If it is no table.

    Examples
    --------
    >>> upload_name("../../etc/my people.CSV")
    'my_people.csv'
    """
    path = PurePath(name.replace("\\", "/"))
    suffix = path.suffix.lower()
    if suffix.removeprefix(".") not in KINDS:
        raise SourceError(f"{path.name}: is not one of {', '.join(KINDS)}; convert it.")
    stem = re.sub(r"[^A-Za-z0-9_-]+", "_", path.stem).strip("_-")[:60]
    return f"{stem or 'upload'}{suffix}"


def _choose_hub(here: Session) -> None:
    one, two, three = st.columns(3)
    name = one.text_input("Dataset id", placeholder="ORG/NAME", key=f"{KEEP}hub")
    config = two.text_input("Config (optional)", key=f"{KEEP}hub-config")
    split = three.text_input("Split (optional)", key=f"{KEEP}hub-split")
    st.caption("Only data are read; code of a repository is never run.")
    if st.button("Load rows", type="primary", key="load"):
        parts = name.strip().split("/")
        if len(parts) > 2 or not all(re.fullmatch(r"[\w.-]*\w[\w.-]*", part) for part in parts):
            raise SourceError(f"{name.strip() or 'id'}: is no id of a Hub dataset; type ORG/NAME.")
        if Path(name.strip()).exists():
            raise SourceError(f"{name.strip()}: is a path here; load it as one.")
        here.pending = Opening(
            data=name.strip(), config=config.strip() or None, split=split.strip() or None
        )


def _load(here: Session) -> None:
    """Read the rows that are asked for."""
    opening = here.pending
    if opening is None:
        return
    here.stopped = None

    def work(tick: Tick) -> Rows:
        return open_own(opening, tick) if opening.dataset is None else open_builtin(opening, tick)

    try:
        rows = watch("Loading rows", work)
    except Stopped:
        return
    except Feda4FairError:
        here.pending = None
        raise
    here.pending = None
    here.load(rows)


def _show_rows(rows: Rows) -> None:
    one, two, three = st.columns(3)
    one.metric("Rows", f"{rows.count:,}", border=True)
    two.metric("Columns", f"{rows.first.num_columns:,}", border=True)
    three.metric("Content", rows.content[:12], border=True, help=f"SHA-256 {rows.content}")
    for note in rows.source.notes:
        st.caption(plain(note))
    if rows.source.synthetic:
        st.caption("Synthetic sample: no row describes a person, no figure is the benchmark's.")
    with st.expander(f"First {PREVIEW} rows"):
        st.dataframe(_preview(rows.first), hide_index=True)


def _preview(table: pa.Table) -> Any:
    """Return the first rows, bytes told by their number."""
    shown = table.slice(0, PREVIEW).replace_schema_metadata(None)
    for position, field in enumerate(shown.schema):
        if pa.types.is_nested(field.type) or pa.types.is_binary(field.type):
            text = pa.array([f"({field.type})"] * shown.num_rows)
            shown = shown.set_column(position, field.name, text)
    return shown.to_pandas()


def _show_schema(base: Recipe) -> None:
    """Say what a benchmark's columns mean; they are part of it."""
    schema = base.schema
    label = schema.label
    st.markdown(f"**Label**: {plain(label.column)}, favorable: {plain(label.names[1])}.")
    for name in schema.sensitive:
        coding = schema[name].coding
        values = ", ".join(text for _, text in coding.names) if coding else "all values"
        st.markdown(f"**Sensitive attribute** {plain(name)}: {plain(values)}.")


def _choose_schema(here: Session, rows: Rows) -> None:
    """Let the person say what the columns mean, beginning with what can be guessed."""
    st.markdown("**What the columns mean**")
    few = rows.few
    if not few:
        raise SchemaError("the rows: no column holds 2 to 50 values, so none can be a label.")
    guess = _guess(rows.first)
    tag = f"{KEEP}{rows.content[:12]}"
    one, two = st.columns(2)
    columns = list(few)
    label = one.selectbox(
        "Label",
        columns,
        index=None,
        placeholder="choose a column",
        key=start(f"{tag}-label", guess.label.column if guess else None),
    )
    if label is None:
        st.info("Choose the label: the outcome that a model would predict.")
        return
    favorable = two.multiselect(
        "Favorable outcome",
        few[label],
        key=start(f"{tag}-favorable-{label}", _favorable(guess, label, few[label])),
        help="The value or values that are good for the person.",
    )
    others = [name for name in columns if name != label]
    sensitive = st.multiselect(
        "Sensitive attributes",
        others,
        key=start(
            f"{tag}-sensitive-{label}",
            [name for name in (guess.sensitive if guess else ()) if name in others],
        ),
    )
    name = st.text_input("Name of the dataset", key=start(f"{tag}-name", _name(here, rows)))
    if not favorable or not sensitive:
        here.base = None
        st.info("Choose the favorable outcome and at least one sensitive attribute.")
        return
    schema = _schema(rows, label, tuple(favorable), tuple(sensitive))
    with st.expander(f"Guessed about {len(schema.columns)} columns", expanded=False):
        st.markdown(
            "\n".join(f"- {plain(text)}" for text in schema.guesses) or "Nothing was guessed."
        )
    here.set_base(Recipe(dataset=name, name="default", schema=schema, partition=Iid(10)))


def _guess(table: pa.Table) -> Schema | None:
    try:
        return Schema.infer(table.slice(0, 10_000))
    except SchemaError:
        return None


def _favorable(guess: Schema | None, label: str, values: list[Any]) -> list[Any]:
    if guess is not None and guess.label.column == label:
        return [value for value in values if value in guess.label.favorable]
    return [1] if values == [0, 1] else [True] if values == [False, True] else []


def _schema(
    rows: Rows, label: str, favorable: tuple[Value, ...], sensitive: tuple[str, ...]
) -> Schema:
    """Return the schema of the choices, inferred once for each of them."""
    kept: dict[Any, Schema] = st.session_state.setdefault("schemas", {})
    key = (rows.content, label, favorable, sensitive)
    if key not in kept:
        kept.clear()
        kept[key] = Schema.infer(
            rows.first, label=label, favorable=list(favorable), sensitive=list(sensitive)
        )
    return kept[key]


def _name(here: Session, rows: Rows) -> str:
    if here.base is not None:
        return here.base.dataset
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", PurePath(rows.opening.data).stem).strip("._-")
    return stem[:60] or "own"
