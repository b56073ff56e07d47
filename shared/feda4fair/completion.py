"""A build of some configs, completed with those that only the repository has.

A release is whole: its manifest, its card and its croissant.json describe every config that the
repository holds. So configs that were not built again are fetched, checked against the manifest
that the Hub holds, and described anew together with those that were.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from huggingface_hub import HfApi, get_token, snapshot_download

from feda4fair.card import render_again
from feda4fair.errors import OutputError, PublishError
from feda4fair.manifest import MANIFEST, Manifest, parse_manifest, read_manifest
from feda4fair.merge import read_card
from feda4fair.patience import Patience, patient_client, persist
from feda4fair.release import CARD, damage, is_safe_path
from feda4fair.remote import Remote, read_remote, read_text

__all__ = ["completed"]

COMMON = ("format", "dataset", "synthetic", "benchmark", "notes", "versions", "source_options")
"""What the configs of one release have in common."""


@contextmanager
def completed(folder: Path, repo_id: str, patience: Patience) -> Iterator[tuple[Path, str]]:
    """Give the folder, or a copy that also holds the configs that only the repository has.

    Parameters
    ----------
    folder : Path
        A folder that ``build.py`` wrote.
    repo_id : str
        The repository, which may not exist yet.
    patience : Patience
        How long to go on when the Hub does not answer.

    Yields
    ------
    Path
        The folder as it is, or a copy that vanishes afterwards.
    str
        Git hash of the manifest on the Hub that the copy builds on; empty for the folder itself.

    Raises
    ------
    PublishError
        If the configs of the repository and those of the folder make no one release.
    OutputError
        If the folder is not a build, or not as its manifest describes it.
    """
    manifest = read_manifest(folder)
    with patient_client(patience):
        remote, theirs, kept = persist(
            lambda: _missing(repo_id, manifest), f"reading {repo_id}", patience, _ignore
        )
    if remote is None or theirs is None or not kept:
        yield folder, ""
        return
    _check_common(folder, repo_id, manifest, theirs, kept)
    found = damage(folder, manifest)
    if found:
        raise OutputError(f"{folder}: {found[0]}; build the folder again.")
    with TemporaryDirectory(prefix="feda4fair-whole-") as place:
        whole, there = Path(place) / folder.resolve().name, Path(place) / "there"
        shutil.copytree(folder, whole, copy_function=_link_data)
        wanted = {path: f for path, f in theirs["files"].items() if _belongs(path, kept)}
        with patient_client(patience):
            persist(
                lambda: _fetch(repo_id, remote.head, list(wanted), there),
                f"download of {', '.join(kept)} from {repo_id}",
                patience,
                _ignore,
            )
        lost = damage(there, {**theirs, "files": wanted})
        if lost:
            raise PublishError(f"{repo_id}: {lost[0]}; build all configs and publish again.")
        shutil.copytree(there, whole, dirs_exist_ok=True, copy_function=shutil.move)
        render_again(whole, _united(repo_id, manifest, theirs, kept))
        yield whole, remote.files[MANIFEST].oid


def _missing(repo_id: str, manifest: Manifest) -> tuple[Remote | None, Manifest | None, list[str]]:
    """Return the repository, its manifest, and its configs that the folder lacks."""
    remote = read_remote(HfApi(), repo_id)
    if remote is None or not {MANIFEST, CARD} <= remote.files.keys():
        return remote, None, []
    try:
        theirs = parse_manifest(read_text(repo_id, MANIFEST, remote.head), repo_id)
        metadata, _ = read_card(read_text(repo_id, CARD, remote.head))
    except OutputError:
        # The plan says what is wrong with it.
        return remote, None, []
    if theirs["dataset"] != manifest["dataset"]:
        return remote, None, []
    # Whoever takes a config out of the card on the Hub wants it gone.
    entries = metadata.get("configs")
    named = {
        entry.get("config_name")
        for entry in (entries if isinstance(entries, list) else [])
        if isinstance(entry, dict) and isinstance(entry.get("config_name"), str)
    }
    kept = [c for c in theirs["configs"] if c not in manifest["configs"] and c in named]
    return remote, theirs, kept


def _check_common(
    folder: Path, repo_id: str, ours: Manifest, theirs: Manifest, kept: Sequence[str]
) -> None:
    differing = [key for key in COMMON if ours[key] != theirs[key]]
    unsafe = [name for name in (*kept, *theirs["files"]) if not is_safe_path(name)]
    if unsafe:
        raise PublishError(f"{repo_id}: its {MANIFEST} names {unsafe[0]!r}, which no build does.")
    if differing:
        raise PublishError(
            f"{repo_id}: has {', '.join(kept)}, which {folder} lacks, and a release is whole; "
            f"they were built with other {', '.join(differing)}, so build all configs and publish "
            "them together, or take those out of the card on the Hub first."
        )


def _belongs(path: str, configs: Sequence[str]) -> bool:
    """Whether a file of a build is one of these configs' own, its datasheet aside."""
    folder, _, rest = path.partition("/")
    match folder:
        case "data":
            return rest.partition("/")[0] in configs
        case "clients" | "statistics" | "dropped" | "recipes":
            return rest.rpartition(".")[0] in configs
        case _:
            return False


def _fetch(repo_id: str, commit: str, paths: Sequence[str], folder: Path) -> None:
    snapshot_download(
        repo_id,
        repo_type="dataset",
        revision=commit,
        allow_patterns=list(paths),
        local_dir=folder,
        token=get_token(),
    )
    shutil.rmtree(folder / ".cache", ignore_errors=True)


def _link_data(source: str, target: str) -> None:
    """Link data, which nobody changes, where the file system can; copy everything else."""
    if source.endswith(".parquet"):
        try:
            os.link(source, target)
        except OSError:
            shutil.copyfile(source, target)
    else:
        shutil.copyfile(source, target)


def _united(repo_id: str, ours: Manifest, theirs: Manifest, kept: Sequence[str]) -> Manifest:
    """Return one manifest of both; the order is the repository's."""
    order = [
        *theirs["configs"],
        *(name for name in ours["configs"] if name not in theirs["configs"]),
    ]
    both = {name: theirs["configs"][name] for name in kept} | ours["configs"]
    sources = {source["name"]: source for source in theirs["sources"]}
    for source in ours["sources"]:
        if sources.setdefault(source["name"], source) != source:
            raise PublishError(
                f"{repo_id}: was built from another {source['name']}; build all configs and "
                "publish them together."
            )
    return {
        **ours,
        "sources": list(sources.values()),
        "configs": {name: both[name] for name in order if name in both},
    }


def _ignore(_line: str) -> None:
    pass
