"""What can be known before any work is done: the token, its rights, the repository's state."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, get_token

from feda4fair.errors import PublishError
from feda4fair.patience import Patience, patient_client, persist
from feda4fair.remote import read_remote

__all__ = ["PREFLIGHT", "Standing", "check_repo_id", "preflight"]

REPO_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}", re.ASCII)

PREFLIGHT = Patience(timeout=10, limit=30, tries=2, wait=0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What the token may do, and what is there: found before any work is done.

    Attributes
    ----------
    user : str
        Name of the token's user; empty where there was no token.
    exists, private, gated : bool
        State of the repository.
    """

    user: str
    exists: bool
    private: bool
    gated: bool

    @property
    def closed(self) -> bool:
        """Whether not everybody can read the repository."""
        return self.private or self.gated


def preflight(
    repo_id: str,
    *,
    create_pr: bool = False,
    private: bool = False,
    patience: Patience = PREFLIGHT,
) -> Standing:
    """Find out before any work whether a release could be pushed.

    Parameters
    ----------
    repo_id : str
        ``namespace/name`` of a dataset repository that may not exist yet.
    create_pr : bool, default False
        A pull request is wanted, which needs no right to write.
    private : bool, default False
        The repository is to be private.
    patience : Patience
        How long to go on when the Hub does not answer.

    Raises
    ------
    PublishError
        If the token is missing, refused or too weak, the namespace is not the user's, or the
        repository is not as wanted.
    """
    check_repo_id(repo_id)
    with patient_client(patience):
        api = HfApi()
        who = persist(lambda: api.whoami(_token()), "preflight: the token", patience, _ignore)
        if not isinstance(who, dict) or not isinstance(who.get("name"), str):
            raise PublishError("preflight: the answer is not that of a Hub; look at HF_ENDPOINT.")
        _check_namespace(who, repo_id, create_pr=create_pr)
        remote = persist(
            lambda: read_remote(api, repo_id), f"preflight: {repo_id}", patience, _ignore
        )
    standing = Standing(
        user=who["name"],
        exists=remote is not None,
        private=remote.private if remote else private,
        gated=bool(remote and remote.gated),
    )
    if private and not standing.private:
        raise PublishError(
            f"{repo_id}: is public and --private was given; make it private in its settings first."
        )
    if create_pr and remote is None:
        raise PublishError(f"{repo_id}: does not exist, so no pull request can be opened.")
    return standing


def check_repo_id(repo_id: str) -> None:
    """Raise PublishError unless ``repo_id`` is NAMESPACE/NAME and means the Hub here."""
    if not REPO_ID.fullmatch(repo_id) or ".." in repo_id or "--" in repo_id:
        raise PublishError(f"repository {repo_id!r}: write it as NAMESPACE/NAME, e.g. org/acs.")
    if Path(repo_id).exists():
        raise PublishError(
            f"{repo_id}: a folder of this name lies in the working directory and would be loaded "
            "in the Hub's place; run this elsewhere."
        )


def _token() -> str:
    """Return the token of the environment or of the Hub's own login, never shown anywhere."""
    token = get_token()
    if not token:
        raise PublishError("no token: set HF_TOKEN or run `hf auth login`.")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise PublishError("the token holds characters that no token has; set HF_TOKEN again.")
    return token


def _check_namespace(who: Mapping[str, Any], repo_id: str, *, create_pr: bool) -> None:
    """Check the user, the organization and the token's own scope against the repository."""
    namespace = repo_id.partition("/")[0]
    roles = {org["name"]: org.get("roleInOrg") for org in who.get("orgs", [])}
    access = who.get("auth", {}).get("accessToken", {})
    if access.get("role") == "read":
        raise PublishError("the token may only read; make one that may write.")
    if create_pr:
        return
    if namespace != who["name"] and namespace not in roles:
        known = ", ".join([who["name"], *roles])
        raise PublishError(
            f"{repo_id}: the token's user may write to {known} only; use another token or "
            "namespace, or --create-pr."
        )
    if roles.get(namespace) == "read":
        raise PublishError(f"{repo_id}: the token's user may only read in {namespace}.")
    scopes = access.get("fineGrained", {}).get("scoped")
    if access.get("role") == "fineGrained" and scopes is not None:
        granted = any(
            scope.get("entity", {}).get("name") in (namespace, repo_id)
            and any("write" in right and "repo" in right for right in scope["permissions"])
            for scope in scopes
        )
        if not granted:
            raise PublishError(
                f"{repo_id}: the fine-grained token has no repo.write there; add it, or use "
                "--create-pr."
            )


def _ignore(_line: str) -> None:
    pass
