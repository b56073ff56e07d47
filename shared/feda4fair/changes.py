"""What publishing would change: a checked folder compared with the head of a repository."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from huggingface_hub import HfApi, get_token

from feda4fair.completion import completed
from feda4fair.errors import PublishError
from feda4fair.manifest import MANIFEST, Manifest
from feda4fair.merge import merge_card, read_card
from feda4fair.patience import Patience, patient_client, persist
from feda4fair.preflight import PREFLIGHT, check_repo_id
from feda4fair.release import CARD, Consent, LocalFile, Release, check_release
from feda4fair.remote import Entry, Remote, read_remote, read_text, tagged

__all__ = [
    "ATTRIBUTES",
    "Change",
    "Plan",
    "checked_release",
    "make_plan",
    "plan",
    "release_tag",
    "same_file",
    "same_release",
]

TAG = re.compile(r"v\d+\.\d+\.\d+([.-][A-Za-z0-9.]+)?", re.ASCII)
ATTRIBUTES = ".gitattributes"
IGNORE = ".gitignore"
OWNED = ("data/", "statistics/", "clients/", "dropped/", "recipes/", "datasheets/")
"""Folders that a release fills alone."""


def _ignore(_line: str) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Change:
    """One path of a plan: added, changed, deleted, kept as it is, or not ours."""

    path: str
    kind: Literal["add", "change", "delete", "same", "foreign"]
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What publishing will do to a repository.

    Attributes
    ----------
    repo_id : str
        The repository.
    release : Release
        The checked folder.
    head : str or None
        Commit that the plan starts from; None where there is no repository yet.
    tag : str
        Tag that the release gets.
    tagged : str or None
        Commit that already has the tag.
    changes : tuple of Change
        Every path of the folder and of the repository.
    card : str
        Text of README.md after merging with the repository's.
    """

    repo_id: str
    release: Release
    head: str | None
    tag: str
    tagged: str | None
    changes: tuple[Change, ...]
    card: str = field(repr=False)

    def paths(self, *kinds: str) -> list[str]:
        """Return the paths of some kinds of change."""
        return [change.path for change in self.changes if change.kind in kinds]

    @property
    def unchanged(self) -> bool:
        """Whether the repository holds the release already."""
        return not self.paths("add", "change", "delete")

    def describe(self) -> str:
        """Return the plan as lines of text."""
        manifest = self.release.manifest
        kind = f" ({self.release.kind})" if self.release.kind else ""
        start = "a new repository" if self.head is None else f"head {self.head[:12]}"
        lines = [
            f"{manifest['dataset']} {manifest['version']}{kind} -> {self.repo_id}, {start}",
            *(f"  checked  {check}" for check in self.release.checks),
            *(f"  note     {note}" for note in manifest["notes"]),
        ]
        shown = [change for change in self.changes if change.kind != "same"]
        lines += [f"  {each.kind:<8} {each.path} ({each.size:,} bytes)" for each in shown]
        same = self.paths("same")
        size = sum(each.size for each in self.changes if each.kind in ("add", "change"))
        verdict = "nothing to do" if self.unchanged else f"one commit, {size:,} bytes"
        place = "stays" if self.tagged else "is set"
        lines.append(f"  {verdict}; {len(same)} files stay; tag {self.tag} {place}")
        return "\n".join(lines)


def plan(
    folder: Path,
    repo_id: str,
    *,
    consent: Consent | None = None,
    index_only: bool = False,
    tag: str = "",
    patience: Patience = PREFLIGHT,
) -> Plan:
    """Check a folder and compare it with the head of a repository; nothing is written.

    Parameters
    ----------
    folder : Path
        A folder that ``build.py`` wrote.
    repo_id : str
        ``namespace/name`` of the dataset repository, which may not exist yet.
    consent : Consent, optional
        What the publisher states about rights.
    index_only : bool, default False
        The source may not be redistributed; only the index form of its rows may.
    tag : str
        Tag of the release; ``v`` and the manifest's version by default.
    patience : Patience
        How long to go on when the Hub does not answer.

    Raises
    ------
    PublishError
        If a rule is broken, the repository holds something else, or the tag is taken.
    OutputError
        If the folder is not a build, or not as its manifest describes it.
    """
    check_repo_id(repo_id)
    with completed(folder, repo_id, patience) as (whole, base):
        release = checked_release(whole, consent or Consent(), index_only=index_only, base=base)
        with patient_client(patience):
            return persist(
                lambda: make_plan(HfApi(), release, repo_id, release_tag(release, tag)),
                f"reading {repo_id}",
                patience,
                _ignore,
            )


def checked_release(
    folder: Path, consent: Consent, *, index_only: bool, base: str = ""
) -> Release:
    """Return the checked folder; the token in use must not be in it."""
    return check_release(
        folder, consent, index_only=index_only, secret=get_token() or "", base=base
    )


def release_tag(release: Release, tag: str) -> str:
    """Return the tag that a release gets: the one given, else its version's."""
    chosen = tag or release.tag
    if not TAG.fullmatch(chosen):
        raise PublishError(f"tag {chosen!r}: write it as vX.Y.Z.")
    return chosen


def make_plan(api: HfApi, release: Release, repo_id: str, tag: str) -> Plan:
    """Compare a checked folder with the head of a repository.

    Raises
    ------
    PublishError
        If the repository holds something else, or the tag is taken.
    """
    remote = read_remote(api, repo_id)
    card = (release.folder / CARD).read_text("utf-8")
    owned: set[str] = set()
    if remote is not None:
        _check_ignore(remote, repo_id)
        theirs = _theirs(remote, repo_id, release)
        owned = _owned(remote, theirs) if theirs else set()
        if CARD in remote.files:
            card = merge_card(read_text(repo_id, CARD, remote.head), card)
            _check_configs(release, repo_id, card)
    changes = tuple(_changes(release, remote, card, owned))
    commit = None if remote is None else tagged(api, repo_id, tag)
    made = Plan(
        repo_id=repo_id,
        release=release,
        head=remote.head if remote else None,
        tag=tag,
        tagged=commit,
        changes=changes,
        card=card,
    )
    if commit is not None and not same_release(api, made, commit):
        raise PublishError(
            f"{repo_id}: {tag} exists on commit {commit[:12]} with another content, and a "
            "published version never changes; raise the version or pass --tag."
        )
    return made


def _check_ignore(remote: Remote, repo_id: str) -> None:
    if IGNORE in remote.files:
        raise PublishError(
            f"{repo_id}: holds a {IGNORE}, by which the Hub would silently leave files out; "
            "remove it there first."
        )


def _check_configs(release: Release, repo_id: str, card: str) -> None:
    """Check that the merged card names no config that the folder lacks."""
    metadata, _ = read_card(card)
    named = {str(entry.get("config_name")) for entry in metadata.get("configs", [])}
    missing = sorted(named - set(release.manifest["configs"]))
    if missing:
        raise PublishError(
            f"{repo_id}: has {', '.join(missing)}, which {release.folder} lacks, and a release is "
            "whole; build all configs, or take them out of the card on the Hub first."
        )


def _theirs(remote: Remote, repo_id: str, release: Release) -> Manifest | None:
    """Return the manifest of an earlier release, None where there is none yet.

    Raises
    ------
    PublishError
        If the repository holds something whose place the release may not take.
    """
    if MANIFEST not in remote.files:
        foreign = set(remote.files) - {ATTRIBUTES, CARD, "LICENSE"}
        if foreign:
            raise PublishError(
                f"{repo_id}: holds {min(foreign)} and no {MANIFEST} of ours, so it is something "
                "else; name another repository."
            )
        return None
    try:
        theirs: Manifest = json.loads(read_text(repo_id, MANIFEST, remote.head))
        dataset, _ = theirs["dataset"], set(theirs["files"])
    except (ValueError, TypeError, KeyError, RecursionError):
        raise PublishError(
            f"{repo_id}: its {MANIFEST} is not one of ours; name another repository."
        ) from None
    if dataset != release.manifest["dataset"]:
        raise PublishError(
            f"{repo_id}: holds {dataset!r}, the folder {release.manifest['dataset']!r}; name "
            "another repository."
        )
    if theirs.get("benchmark") and release.kind and not release.consent.not_benchmark:
        raise PublishError(
            f"{repo_id}: holds the benchmark and {release.folder} is {release.kind}; name another "
            "repository, or pass --not-benchmark if it is to take its place."
        )
    own = release.files[MANIFEST]
    there = remote.files[MANIFEST]
    if release.base not in ("", there.oid) and not same_file(there, MANIFEST, own, release, ""):
        raise PublishError(f"{repo_id}: was published anew meanwhile; run the same command again.")
    return theirs


def _owned(remote: Remote, theirs: Manifest) -> set[str]:
    """Return the paths of the repository that an earlier release wrote."""
    listed = set(theirs["files"])
    return {
        path
        for path in remote.files
        if path in listed or path == MANIFEST or path.startswith(OWNED) or _is_code(path)
    }


def _is_code(path: str) -> bool:
    """Whether the Hub's clients would take the file for a loading script or its cache."""
    return "/" not in path and (path.endswith(".py") or path == "dataset_infos.json")


def _changes(
    release: Release, remote: Remote | None, card: str, owned: Iterable[str]
) -> Iterable[Change]:
    there = remote.files if remote else {}
    for path, local in sorted(release.files.items()):
        entry = there.get(path)
        size = len(card.encode()) if path == CARD else local.size
        if entry is None:
            yield Change(path, "add", size)
        elif path == ATTRIBUTES or same_file(entry, path, local, release, card):
            yield Change(path, "same", entry.size)
        else:
            yield Change(path, "change", size)
    for path in sorted(set(there) - set(release.files)):
        ours = path in owned and path not in (ATTRIBUTES, CARD)
        yield Change(path, "delete" if ours else "foreign", there[path].size)


def same_file(entry: Entry, path: str, local: LocalFile, release: Release, card: str) -> bool:
    """Whether the repository's file is that of the release, the card being the merged one."""
    if path == CARD:
        data = card.encode()
    elif entry.large or entry.size != local.size:
        return entry.large and entry.oid == local.sha256
    else:
        data = (release.folder / path).read_bytes()
    if entry.large:
        return entry.oid == hashlib.sha256(data).hexdigest()
    return entry.oid == hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def same_release(api: HfApi, made: Plan, commit: str) -> bool:
    """Whether a commit holds the release; the card and the Hub's own file are no part of it."""
    if commit == made.head:
        return made.unchanged
    remote = read_remote(api, made.repo_id, commit)
    if remote is None:
        return False
    listed = set(made.release.files) - {ATTRIBUTES, CARD}
    there = {path for path in remote.files if path.startswith(OWNED)}
    return there <= listed <= set(remote.files) and all(
        same_file(remote.files[path], path, made.release.files[path], made.release, made.card)
        for path in listed
    )
