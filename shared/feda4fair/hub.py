"""Publish a built folder: plan, one commit, one tag.

Whatever breaks on the way, the Hub shows the old release or the new one: large files are sent
first and belong to no commit until the single commit names them all. Running again finishes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, get_token
from huggingface_hub.errors import HfHubHTTPError

from feda4fair.changes import (
    ATTRIBUTES,
    Plan,
    checked_release,
    make_plan,
    plan,
    release_tag,
    same_file,
    same_release,
)
from feda4fair.completion import completed
from feda4fair.errors import PublishError
from feda4fair.manifest import MANIFEST
from feda4fair.patience import Patience, is_status, patient_client, persist
from feda4fair.preflight import Standing, preflight
from feda4fair.release import CARD, Consent, Release, is_safe_path
from feda4fair.remote import read_remote, tagged

__all__ = ["Plan", "Published", "Standing", "plan", "preflight", "publish"]

MOST_HELD = 1_000_000
"""Bytes of a file that is held in memory while it is sent."""

Say = Callable[[str], None]


def _silent(_line: str) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What publishing came to.

    Attributes
    ----------
    commit : str
        The commit that holds the release.
    new : bool
        Whether this run made the commit.
    tag : str
        The tag on it; empty for a pull request.
    url : str
        Page of the commit or of the pull request.
    """

    commit: str
    new: bool
    tag: str
    url: str


def publish(
    folder: Path,
    repo_id: str,
    *,
    standing: Standing | None = None,
    consent: Consent | None = None,
    index_only: bool = False,
    tag: str = "",
    create_pr: bool = False,
    private: bool = False,
    patience: Patience | None = None,
    say: Say = _silent,
) -> Published:
    """Publish a folder in one commit, then tag it; a release that is there already stays.

    Parameters
    ----------
    folder, repo_id, consent, index_only, tag
        As for :func:`plan`.
    standing : Standing, optional
        Result of :func:`preflight`, which is run if it is not given.
    create_pr : bool, default False
        Open a pull request; the tag is left to whoever merges it.
    private : bool, default False
        Make a new repository private.
    patience : Patience, optional
        How long to go on when the Hub does not do what it is asked.
    say : callable
        Receives a line of text for each step.

    Raises
    ------
    PublishError
        If a rule is broken or the Hub does not do its part; the Hub then shows the old release,
        or the new one if the message says so.
    OutputError
        If the folder is not a build, or not as its manifest describes it.
    """
    patience = patience or Patience()
    standing = standing or preflight(repo_id, create_pr=create_pr, private=private)
    closed = standing.closed if standing.exists else private
    stated = replace(consent or Consent(), closed=closed)
    with completed(folder, repo_id, patience) as (whole, base):
        release = checked_release(whole, stated, index_only=index_only, base=base)
        return _publish(release, repo_id, standing, tag, create_pr, private, patience, say)


def _publish(
    release: Release,
    repo_id: str,
    standing: Standing,
    tag: str,
    create_pr: bool,
    private: bool,
    patience: Patience,
    say: Say,
) -> Published:
    chosen = release_tag(release, tag)
    with patient_client(patience):
        api = HfApi()
        if not standing.exists:
            _create(api, repo_id, private=private, patience=patience, say=say)
        commit = _Commit(api, release, repo_id, chosen, create_pr, say)
        done = persist(commit, f"commit to {repo_id}", patience, say)
        if done.new or not commit.was_tagged:
            check = f"{repo_id}: commit {done.commit[:12]} is there, but checking it"
            persist(lambda: commit.compare(done.commit), check, patience, say)
            persist(lambda: _load(repo_id, release, done.commit), check, patience, say)
        if not create_pr and not commit.was_tagged:
            say(f"tag {chosen}")
            persist(lambda: _set_tag(api, commit, done), f"tag {chosen}", patience, say)
    return done


def _create(api: HfApi, repo_id: str, *, private: bool, patience: Patience, say: Say) -> None:
    def create() -> None:
        try:
            api.create_repo(repo_id, repo_type="dataset", private=private, token=get_token())
        except HfHubHTTPError as error:
            # Another publisher, or an answer that was lost: then it must be as wanted.
            remote = read_remote(api, repo_id) if is_status(error, 409) else None
            if remote is None:
                raise
            if private and not remote.private:
                raise PublishError(f"{repo_id}: was made public meanwhile; see to it.") from None

    say(f"create {repo_id}{' (private)' if private else ''}")
    persist(create, f"create {repo_id}", patience, say)


@dataclass(slots=True)
class _Commit:
    """The step that is tried until it holds: read the head, plan anew, commit on that head."""

    api: HfApi
    release: Release
    repo_id: str
    tag: str
    create_pr: bool
    say: Say
    made: Plan | None = None

    def __call__(self) -> Published:
        made = self.made = make_plan(self.api, self.release, self.repo_id, self.tag)
        if made.head is None:
            raise PublishError(f"{self.repo_id}: is gone; nothing was published.")
        if made.unchanged:
            self.say(f"{self.repo_id} holds this release already, no commit")
            return self._published(made.head, new=False)
        if self.create_pr and (found := self._open_request(made)):
            self.say(f"{found} holds this release already, no commit")
            return self._published(found, new=False)
        self.say(made.describe())
        info = self.api.create_commit(
            self.repo_id,
            _operations(made),
            commit_message=f"{self.release.manifest['dataset']} {self.tag}",
            commit_description=self.release.kind,
            repo_type="dataset",
            parent_commit=made.head,
            create_pr=self.create_pr,
            token=get_token(),
        )
        return self._published(info.oid, new=True, url=info.pr_url or info.commit_url)

    @property
    def was_tagged(self) -> bool:
        """Whether the release had its tag before."""
        return self.made is not None and self.made.tagged is not None

    def _published(self, commit: str, *, new: bool, url: str = "") -> Published:
        page = f"{self.api.endpoint}/datasets/{self.repo_id}/commit/{commit}"
        tag = "" if self.create_pr else self.tag
        return Published(commit=commit, new=new, tag=tag, url=url or page)

    def _open_request(self, made: Plan) -> str | None:
        """Return a pull request that holds the release, from an earlier run or a lost answer."""
        refs = self.api.list_repo_refs(
            self.repo_id, repo_type="dataset", include_pull_requests=True, token=get_token()
        )
        for ref in reversed(refs.pull_requests or []):
            if not self._difference(made, ref.target_commit):
                return ref.target_commit
        return None

    def compare(self, commit: str) -> None:
        """Check that a commit is what was planned.

        Raises
        ------
        PublishError
            If a path is missing, left over, or has another content.
        """
        if self.made is None:
            raise PublishError("compare: nothing was planned yet.")
        different = self._difference(self.made, commit)
        if different:
            raise PublishError(
                f"{self.repo_id}: the Hub holds {different[0]} in commit {commit[:12]} other than "
                "it was sent; run the same command again."
            )

    def _difference(self, made: Plan, commit: str) -> list[str]:
        remote = read_remote(self.api, self.repo_id, commit)
        if remote is None:
            return [MANIFEST]
        left = [path for path in made.paths("delete") if path in remote.files]
        return left + [
            path
            for path, local in self.release.files.items()
            if path != ATTRIBUTES
            and (
                path not in remote.files
                or not same_file(remote.files[path], path, local, self.release, made.card)
            )
        ]


def _operations(made: Plan) -> list[CommitOperationAdd | CommitOperationDelete]:
    operations: list[CommitOperationAdd | CommitOperationDelete] = []
    for path in made.paths("add", "change"):
        operations.append(_addition(made, path))
    unsafe = [path for path in made.paths("delete") if not is_safe_path(path)]
    if unsafe:
        raise PublishError(f"{made.repo_id}: holds {unsafe[0]!r}; remove it there by hand.")
    operations += [
        CommitOperationDelete(path_in_repo=path, is_folder=False) for path in made.paths("delete")
    ]
    return operations


def _addition(made: Plan, path: str) -> CommitOperationAdd:
    """Return one file to send, with the content that was checked.

    Small files are held in memory from here on, and of large ones the Hub compares the hash, so
    that a file which is changed meanwhile cannot slip in.
    """
    if path == CARD:
        return CommitOperationAdd(path_in_repo=path, path_or_fileobj=made.card.encode())
    local = made.release.files[path]
    file = made.release.folder / path
    try:
        content = file if local.size > MOST_HELD else file.read_bytes()
        operation = CommitOperationAdd(path_in_repo=path, path_or_fileobj=content)
    except (OSError, ValueError):
        operation = None
    if operation is None or operation.upload_info.sha256.hex() != local.sha256:
        raise PublishError(
            f"{file}: was changed after it had been checked; run the same command again when "
            "nothing else writes there."
        )
    return operation


def _set_tag(api: HfApi, commit: _Commit, done: Published) -> None:
    """Tag the commit; a tag that is there must be on this release."""
    try:
        api.create_tag(
            commit.repo_id,
            tag=commit.tag,
            revision=done.commit,
            repo_type="dataset",
            token=get_token(),
        )
    except HfHubHTTPError as error:
        if not is_status(error, 409):
            raise
        there = tagged(api, commit.repo_id, commit.tag)
        same = there == done.commit
        if not same and there and commit.made is not None:
            same = same_release(api, commit.made, there)
        if not same:
            raise PublishError(
                f"{commit.repo_id}: the release is in commit {done.commit[:12]}, but {commit.tag} "
                f"was set on {(there or 'nothing')[:12]} meanwhile; tag it with another version."
            ) from None


def _load(repo_id: str, release: Release, commit: str) -> None:
    """Read the first row of the smallest config at the commit, as a user would."""
    import datasets

    configs = release.manifest["configs"]
    name = min(configs, key=lambda config: configs[config]["rows"])
    split = next(iter(configs[name]["splits"]))
    stream = datasets.load_dataset(repo_id, name, split=split, revision=commit, streaming=True)
    row = next(iter(stream))
    if set(row) != set(configs[name]["features"]):
        raise PublishError(f"{repo_id}: {name} loads with other columns at {commit[:12]}.")
