"""A dataset repository of the Hub as it is: read only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from huggingface_hub import HfApi, get_session, get_token, hf_hub_url
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils import (  # type: ignore[attr-defined]
    build_hf_headers,
    hf_raise_for_status,
)

from feda4fair.patience import is_status

__all__ = ["Entry", "Remote", "read_remote", "read_text", "tagged"]


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of the repository: its size and its SHA-256 if large, else its git hash."""

    size: int
    oid: str
    large: bool


@dataclass(frozen=True, slots=True)
class Remote:
    """The repository at one commit."""

    private: bool
    gated: bool
    head: str
    files: Mapping[str, Entry]


def read_remote(api: HfApi, repo_id: str, revision: str = "main") -> Remote | None:
    """Return commit and tree in one request, so that they belong together."""
    try:
        info = api.dataset_info(repo_id, revision=revision, files_metadata=True, token=get_token())
    except HfHubHTTPError as error:
        # Without a token a repository that does not exist answers 401.
        if is_status(error, 404) or (is_status(error, 401) and not get_token()):
            return None
        raise
    files = {}
    for each in info.siblings or []:
        large = each.lfs is not None
        oid = each.lfs.sha256 if each.lfs is not None else each.blob_id
        files[each.rfilename] = Entry(each.size or 0, oid or "", large)
    return Remote(bool(info.private), bool(info.gated), info.sha or "", files)


def read_text(repo_id: str, path: str, commit: str) -> str:
    """Return a small file of a repository as text; what is not UTF-8 in it is replaced."""
    url = hf_hub_url(repo_id, path, repo_type="dataset", revision=commit)
    response = get_session().get(url, headers=build_hf_headers(token=get_token()))
    hf_raise_for_status(response)
    return response.content.decode("utf-8", "replace")


def tagged(api: HfApi, repo_id: str, tag: str) -> str | None:
    """Return the commit that has a tag, None if there is no such tag."""
    refs = api.list_repo_refs(repo_id, repo_type="dataset", token=get_token())
    return next((ref.target_commit for ref in refs.tags if ref.name == tag), None)
