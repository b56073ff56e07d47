"""A Hugging Face Hub on 127.0.0.1, small and in memory, that can be made to fail.

    with HubEmulator() as hub:
        hub.fault("POST", "/commit/", status=503, times=1)
        subprocess.run([...], env={**os.environ, **hub.env(home)})

A repository is a graph of commits: refs -> commit -> flat tree of entries. It answers what
huggingface_hub 1 and 2 and datasets 3.6 to 5 ask for repositories, commits with large files (LFS
basic transfer), tags, branches, pull requests as refs, settings, reading whole or by range. Not
here: Xet (clients need HF_HUB_DISABLE_XET=1), rate limits unless asked for, the viewer, redirects
to a content network, and the Hub's full rules for YAML.
"""

from __future__ import annotations

import base64
import email.utils
import hashlib
import json
import re
import socket
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import yaml

LARGE = (".parquet", ".arrow", ".zip", ".gz", ".tar", ".npy", ".bin", ".png", ".jpg")
LARGE_BYTES = 10 * 1024 * 1024
ATTRIBUTES = b"*.parquet filter=lfs diff=lfs merge=lfs -text\n"

API = re.compile(r"^/api/(models|datasets|spaces)/([^/]+/[^/]+)(?:/(.*))?$")
RESOLVE = re.compile(r"^/(?:(datasets|spaces)/)?([^/]+/[^/]+)/(?:resolve|raw)/([^/]+)/(.+)$")
LFS = re.compile(r"^/(?:(datasets|spaces)/)?([^/]+/[^/]+)\.git/info/lfs/objects/batch$")
FRONT = re.compile(r"---\r?\n(.*?)\r?\n---", re.DOTALL)

Answer = tuple[int, dict[str, str], bytes]


def git_oid(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime())


@dataclass(frozen=True)
class Entry:
    """A file of a tree: ``key`` is the SHA-256 of its content, ``oid`` its git hash."""

    key: str
    size: int
    oid: str
    lfs: bool = False


@dataclass
class Commit:
    oid: str
    parent: str | None
    title: str
    message: str
    date: str
    tree: dict[str, Entry]


@dataclass
class Repo:
    """``refs`` maps refs/heads/main, refs/tags/v1.0.0 and refs/pr/1 to commits."""

    type: str
    id: str
    private: bool = False
    gated: Any = False
    refs: dict[str, str] = field(default_factory=dict)
    commits: dict[str, Commit] = field(default_factory=dict)

    def resolve(self, revision: str) -> Commit | None:
        for name in (revision, f"refs/heads/{revision}", f"refs/tags/{revision}"):
            if name in self.refs:
                return self.commits[self.refs[name]]
        hits = [c for oid, c in self.commits.items() if oid.startswith(revision)]
        return hits[0] if len(revision) >= 7 and len(hits) == 1 else None


@dataclass
class Fault:
    """What goes wrong with requests of a method whose path matches, and how often.

    One of: ``status`` is answered; the connection is ``cut`` in the middle of the body; the
    request is ``silent``, never answered; it is done but the answer ``lost``; ``then`` is called
    before it is served as usual.
    """

    method: str
    path: str
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False
    silent: bool = False
    lost: bool = False
    then: Callable[[], None] | None = None
    times: int | None = None


class HubError(Exception):
    def __init__(
        self,
        status: int,
        code: str = "",
        message: str = "",
        *,
        body: Any = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.body = status, code, message, body
        self.headers = headers or {}


def as_json(value: Any, status: int = 200, **headers: str) -> Answer:
    return status, {"Content-Type": "application/json", **headers}, json.dumps(value).encode()


class HubEmulator:
    """A Hub with users, repositories and faults.

    ``requests`` lists (method, path, status); ``received`` the large objects that arrived whole,
    each time they did; ``bytes_out`` counts body bytes, by path in ``served``.
    """

    def __init__(self, users: dict[str, dict[str, Any]] | None = None) -> None:
        self.users = users or {"hf_test": {"name": "tester", "orgs": ["feda4fair"]}}
        self.blobs: dict[str, bytes] = {}
        self.repos: dict[tuple[str, str], Repo] = {}
        self.requests: list[tuple[str, str, int]] = []
        self.received: list[str] = []
        self.served: dict[str, int] = {}
        self.faults: list[Fault] = []
        self.lock = threading.RLock()
        self.closing = threading.Event()
        emulator = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_arguments: Any) -> None:
                pass

            def serve(self) -> None:
                emulator.serve(self)

            do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = serve  # noqa: N815

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 64

            def handle_error(self, *_arguments: Any) -> None:
                pass  # a client that was killed is what some tests are about

        self.server = Server(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self) -> HubEmulator:
        self.thread = threading.Thread(
            target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )
        self.thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.closing.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def env(self, home: Path, token: str = "hf_test") -> dict[str, str]:
        """Return the environment of a client program; all of it is read at import."""
        return {
            "HF_ENDPOINT": self.endpoint,
            "HF_HOME": str(home),
            "HF_TOKEN": token,
            "HF_TOKEN_PATH": str(home / "no-token"),
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_UPDATE_DOWNLOAD_COUNTS": "0",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "NO_PROXY": "127.0.0.1,localhost",
        }

    @property
    def bytes_out(self) -> int:
        return sum(self.served.values())

    def fault(self, method: str, path: str, **how: Any) -> Fault:
        """Make requests fail; faults are tried in order, those with ``times`` wear off."""
        made = Fault(method, path, **how)
        self.faults.append(made)
        return made

    def dataset(self, repo_id: str) -> Repo:
        return self.repos["dataset", repo_id]

    def tree(self, repo_id: str, revision: str = "main") -> dict[str, str]:
        """Return path and content hash of every file of a dataset at a revision."""
        commit = self.dataset(repo_id).resolve(revision)
        assert commit is not None, f"no revision {revision}"
        return {path: entry.key for path, entry in commit.tree.items()}

    def history(self, repo_id: str) -> list[str]:
        """Return the titles of the commits on main, the newest first."""
        repo, titles = self.dataset(repo_id), []
        commit = repo.resolve("main")
        while commit is not None:
            titles.append(commit.title)
            commit = repo.commits.get(commit.parent or "")
        return titles

    def write(self, repo_id: str, path: str, data: bytes | None, title: str = "by hand") -> None:
        """Commit a file to main, or remove it, as a person would in the browser."""
        with self.lock:
            repo = self.dataset(repo_id)
            tree = dict(self.commit_of(repo, "main").tree)
            if data is None:
                del tree[path]
            else:
                tree[path] = Entry(self.put(data), len(data), git_oid(data))
            self.new_commit(repo, "refs/heads/main", tree, title)

    # Storage

    def put(self, data: bytes) -> str:
        key = hashlib.sha256(data).hexdigest()
        self.blobs[key] = data
        return key

    def commit_of(self, repo: Repo, revision: str) -> Commit:
        commit = repo.resolve(revision)
        if commit is None:
            raise HubError(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return commit

    def new_commit(
        self, repo: Repo, ref: str, tree: dict[str, Entry], title: str, message: str = ""
    ) -> Commit:
        parent = repo.refs.get(ref)
        listing = sorted((path, entry.oid) for path, entry in tree.items())
        seed = json.dumps([parent, title, listing, time.time_ns()]).encode()
        oid = hashlib.sha1(seed).hexdigest()
        repo.commits[oid] = Commit(oid, parent, title, message, now(), tree)
        repo.refs[ref] = oid
        return repo.commits[oid]

    # Who may do what

    def user(self, request: BaseHTTPRequestHandler) -> dict[str, Any] | None:
        header = request.headers.get("Authorization") or ""
        return self.users.get(header.removeprefix("Bearer ").strip())

    def repo(
        self, request: BaseHTTPRequestHandler, kind: str, repo_id: str, *, write: bool = False
    ) -> Repo:
        repo, user = self.repos.get((kind, repo_id)), self.user(request)
        member = user is not None and repo_id.split("/")[0] in [user["name"], *user["orgs"]]
        if repo is None or (repo.private and not member):
            raise HubError(404 if user else 401, "RepoNotFound", "Repository not found")
        if write and not (member and (user or {}).get("role", "write") != "read"):
            raise HubError(403, message="You don't have write access")
        return repo

    # One request

    def serve(self, request: BaseHTTPRequestHandler) -> None:
        url = urlsplit(request.path)
        fault = self.find_fault(request.command, url.path)
        if fault is not None and fault.cut:
            request.rfile.read(int(request.headers.get("Content-Length") or 0) // 2)
            return self.hang_up(request)
        body = self.read_body(request)
        if fault is not None and fault.silent:
            self.closing.wait()
            return self.hang_up(request)
        if fault is not None and fault.then is not None:
            fault.then()
        status, headers, out = self.answer(request, fault, url.path, parse_qs(url.query), body)
        self.requests.append((request.command, request.path, status))
        if fault is not None and fault.lost:
            return self.hang_up(request)
        request.send_response(status)
        for name, value in ({"Content-Length": str(len(out))} | headers).items():
            request.send_header(name, value)
        request.end_headers()
        if request.command != "HEAD":
            with self.lock:
                self.served[url.path] = self.served.get(url.path, 0) + len(out)
            request.wfile.write(out)
        return None

    def find_fault(self, method: str, path: str) -> Fault | None:
        with self.lock:
            for fault in self.faults:
                if fault.method == method and re.search(fault.path, path):
                    if fault.times is not None:
                        fault.times -= 1
                        if fault.times == 0:
                            self.faults.remove(fault)
                    return fault
        return None

    @staticmethod
    def hang_up(request: BaseHTTPRequestHandler) -> None:
        request.close_connection = True
        request.connection.shutdown(socket.SHUT_RDWR)

    @staticmethod
    def read_body(request: BaseHTTPRequestHandler) -> bytes:
        if "chunked" not in (request.headers.get("Transfer-Encoding") or ""):
            return request.rfile.read(int(request.headers.get("Content-Length") or 0))
        chunks = []
        while size := int(request.rfile.readline().split(b";")[0], 16):
            chunks.append(request.rfile.read(size))
            request.rfile.readline()
        request.rfile.readline()
        return b"".join(chunks)

    def answer(
        self,
        request: BaseHTTPRequestHandler,
        fault: Fault | None,
        path: str,
        query: dict[str, list[str]],
        body: bytes,
    ) -> Answer:
        try:
            if fault is not None and fault.status:
                raise HubError(fault.status, message="injected fault", headers=fault.headers)
            return self.route(request, path, query, body)
        except HubError as error:
            headers = {"X-Error-Code": error.code} if error.code else {}
            if error.message:
                headers["X-Error-Message"] = error.message
            body = error.body if error.body is not None else {"error": error.message}
            return as_json(body, error.status, **headers, **error.headers)
        except Exception:  # a mistake in here must not look like a fault of the Hub
            traceback.print_exc()
            return as_json({"error": "emulator"}, 501)

    def route(
        self,
        request: BaseHTTPRequestHandler,
        path: str,
        query: dict[str, list[str]],
        body: bytes,
    ) -> Answer:
        kind = request.headers.get("Content-Type") or ""
        is_json = kind.startswith("application/json")
        data: dict[str, Any] = json.loads(body) if body and is_json else {}
        match path:
            case "/api/whoami-v2":
                return self.whoami(request)
            case "/api/repos/create":
                return self.create_repo(request, data)
            case "/api/validate-yaml":
                return self.validate_yaml(data)
        if found := LFS.match(path):
            kind = (found[1] or "models")[:-1]
            return self.lfs_batch(request, kind, found[2], data or json.loads(body))
        if path.startswith("/_lfs/"):
            return self.lfs_object(request.command, path, body, data)
        if found := API.match(path):
            return self.api(
                request, found[1][:-1], unquote(found[2]), found[3] or "", query, body, data
            )
        if found := RESOLVE.match(path):
            kind = (found[1] or "models")[:-1]
            return self.resolve(request, kind, found[2], unquote(found[3]), unquote(found[4]))
        raise HubError(404, message=f"emulator: no route for {request.command} {path}")

    # Account and repositories

    def whoami(self, request: BaseHTTPRequestHandler) -> Answer:
        user = self.user(request)
        if user is None:
            raise HubError(401, message="Invalid username or password.")
        orgs = [
            {"type": "org", "name": name, "roleInOrg": user.get("role_in_org", "admin")}
            for name in user["orgs"]
        ]
        token = {"displayName": "test", "role": user.get("role", "write")}
        if "scoped" in user:
            token = token | {"role": "fineGrained", "fineGrained": {"scoped": user["scoped"]}}
        return as_json(
            {
                "type": "user",
                "name": user["name"],
                "orgs": orgs,
                "auth": {"type": "access_token", "accessToken": token},
            }
        )

    def create_repo(self, request: BaseHTTPRequestHandler, data: dict[str, Any]) -> Answer:
        user = self.user(request)
        if user is None:
            raise HubError(401, message="Invalid username or password.")
        namespace = data.get("organization") or user["name"]
        if namespace not in [user["name"], *user["orgs"]]:
            raise HubError(403, message=f"You may not create a repo under {namespace}")
        kind, repo_id = data.get("type") or "model", f"{namespace}/{data['name']}"
        url = f"{self.endpoint}/{kind}s/{repo_id}"
        with self.lock:
            if (kind, repo_id) in self.repos:
                body = {"error": "You already created this repo", "url": url}
                raise HubError(409, body=body)
            private = data.get("private") or data.get("visibility") == "private"
            repo = self.repos[kind, repo_id] = Repo(kind, repo_id, private=bool(private))
            entry = Entry(self.put(ATTRIBUTES), len(ATTRIBUTES), git_oid(ATTRIBUTES))
            self.new_commit(repo, "refs/heads/main", {".gitattributes": entry}, "initial commit")
        return as_json({"url": url, "name": repo_id, "id": repo_id})

    def validate_yaml(self, data: dict[str, Any]) -> Answer:
        found = FRONT.match(data.get("content", ""))
        try:
            metadata = yaml.safe_load(found[1]) if found else {}
        except yaml.YAMLError as error:
            body = {"errors": [{"message": f"YAML: {error}"}], "warnings": []}
            return as_json(body, 400)
        errors = [
            {"message": f'"{key}" must be an array'}
            for key in ("tags", "task_categories", "configs", "size_categories")
            if not isinstance(metadata.get(key, []), list)
        ]
        return as_json({"errors": errors, "warnings": []}, 400 if errors else 200)

    def api(
        self,
        request: BaseHTTPRequestHandler,
        kind: str,
        repo_id: str,
        rest: str,
        query: dict[str, list[str]],
        body: bytes,
        data: dict[str, Any],
    ) -> Answer:
        head, _, tail = rest.partition("/")
        reads = request.command in ("GET", "HEAD") or head == "paths-info"
        repo = self.repo(request, kind, repo_id, write=not (reads or "create_pr" in query))
        match head:
            case "" | "revision":
                commit = self.commit_of(repo, unquote(tail) if head else "main")
                return as_json(self.info(repo, commit, blobs="blobs" in query))
            case "tree":
                revision, _, below = tail.partition("/")
                return self.list_tree(repo, unquote(revision), unquote(below), query)
            case "paths-info":
                return self.paths_info(repo, unquote(tail), data or parse_qs(body.decode()))
            case "refs":
                return as_json(self.refs(repo))
            case "commits":
                return as_json(self.log(repo, unquote(tail)))
            case "branch" | "tag":
                return self.set_ref(request.command, repo, head, unquote(tail), data)
            case "settings":
                repo.gated = data.get("gated", repo.gated)
                if "private" in data or "visibility" in data:
                    repo.private = data.get("private", data.get("visibility") == "private")
                return as_json({"private": repo.private, "gated": repo.gated})
            case "preupload":
                return self.preupload(repo, unquote(tail), data["files"])
            case "commit":
                return self.commit(repo, unquote(tail), body, create_pr="create_pr" in query)
        raise HubError(404, message=f"emulator: no api route {request.command} {rest}")

    # Reading

    def info(self, repo: Repo, commit: Commit, *, blobs: bool) -> dict[str, Any]:
        siblings = []
        for path, entry in sorted(commit.tree.items()):
            each: dict[str, Any] = {"rfilename": path}
            if blobs:
                each |= {"size": entry.size, "blobId": entry.oid}
                if entry.lfs:
                    each["lfs"] = {"sha256": entry.key, "size": entry.size, "pointerSize": 134}
            siblings.append(each)
        card = {}
        if "README.md" in commit.tree:
            text = self.blobs[commit.tree["README.md"].key].decode("utf-8", "replace")
            with suppress(yaml.YAMLError, AttributeError):
                found = FRONT.match(text)
                card = dict(yaml.safe_load(found[1]).items()) if found else {}
        return {
            "_id": "0",
            "id": repo.id,
            "author": repo.id.split("/")[0],
            "sha": commit.oid,
            "lastModified": commit.date,
            "createdAt": min(each.date for each in repo.commits.values()),
            "private": repo.private,
            "gated": repo.gated,
            "disabled": False,
            "downloads": 0,
            "likes": 0,
            "tags": [],
            "cardData": {key: value for key, value in card.items() if key == "license"},
            "siblings": siblings,
        }

    @staticmethod
    def file_json(path: str, entry: Entry, commit: Commit, *, expand: bool) -> dict[str, Any]:
        found: dict[str, Any] = {"type": "file", "path": path, "size": entry.size}
        found["oid"] = entry.oid
        if entry.lfs:
            found["lfs"] = {"oid": entry.key, "size": entry.size, "pointerSize": 134}
        if expand:
            last = {"id": commit.oid, "title": commit.title, "date": commit.date}
            found |= {"lastCommit": last, "securityFileStatus": None}
        return found

    @staticmethod
    def folder_json(path: str, commit: Commit, *, expand: bool) -> dict[str, Any]:
        oid = hashlib.sha1(path.encode()).hexdigest()
        found: dict[str, Any] = {"type": "directory", "path": path, "size": 0, "oid": oid}
        if expand:
            found["lastCommit"] = {"id": commit.oid, "title": commit.title, "date": commit.date}
        return found

    def list_tree(
        self, repo: Repo, revision: str, below: str, query: dict[str, list[str]]
    ) -> Answer:
        commit = self.commit_of(repo, revision)
        deep, expand = (
            query.get(key, ["false"])[0].lower() in ("true", "1")
            for key in ("recursive", "expand")
        )
        prefix = below.strip("/") + "/" if below.strip("/") else ""
        found, folders = [], set()
        for path in sorted(path for path in commit.tree if path.startswith(prefix)):
            parts = path[len(prefix) :].split("/")
            for depth in range(1, len(parts) if deep else min(2, len(parts))):
                folder = prefix + "/".join(parts[:depth])
                if folder not in folders:
                    folders.add(folder)
                    found.append(self.folder_json(folder, commit, expand=expand))
            if deep or len(parts) == 1:
                found.append(self.file_json(path, commit.tree[path], commit, expand=expand))
        if prefix and not found:
            raise HubError(404, "EntryNotFound", f"{below} does not exist on {revision}")
        size, start = (int(query.get(k, [d])[0]) for k, d in (("limit", "1000"), ("cursor", "0")))
        headers = {}
        if start + size < len(found):
            link = f"{self.endpoint}/api/{repo.type}s/{repo.id}/tree/{revision}/{below}"
            link += f"?recursive={deep}&expand={expand}&limit={size}&cursor={start + size}"
            headers["Link"] = f'<{link}>; rel="next"'
        return as_json(found[start : start + size], **headers)

    def paths_info(self, repo: Repo, revision: str, form: dict[str, Any]) -> Answer:
        commit = self.commit_of(repo, revision)
        expand = "true" in str(form.get("expand", [False])).lower()
        paths = form.get("paths", [])
        found = []
        for each in [paths] if isinstance(paths, str) else paths:
            path = each.strip("/")
            if path in commit.tree:
                found.append(self.file_json(path, commit.tree[path], commit, expand=expand))
            elif any(other.startswith(path + "/") for other in commit.tree):
                found.append(self.folder_json(path, commit, expand=expand))
        return as_json(found)

    @staticmethod
    def refs(repo: Repo) -> dict[str, Any]:
        def under(prefix: str, *, short: bool = True) -> list[dict[str, str]]:
            return [
                {"name": ref[len(prefix) :] if short else ref, "ref": ref, "targetCommit": oid}
                for ref, oid in repo.refs.items()
                if ref.startswith(prefix)
            ]

        return {
            "branches": under("refs/heads/"),
            "tags": under("refs/tags/"),
            "converts": under("refs/convert/"),
            "pullRequests": under("refs/pr/", short=False),
        }

    def log(self, repo: Repo, revision: str) -> list[dict[str, Any]]:
        commit: Commit | None = self.commit_of(repo, revision)
        found = []
        while commit is not None:
            found.append(
                {
                    "id": commit.oid,
                    "title": commit.title,
                    "message": commit.message,
                    "date": commit.date,
                    "authors": [{"user": "tester"}],
                }
            )
            commit = repo.commits.get(commit.parent or "")
        return found

    def resolve(
        self, request: BaseHTTPRequestHandler, kind: str, repo_id: str, revision: str, path: str
    ) -> Answer:
        repo = self.repo(request, kind, repo_id)
        if repo.gated and not self.user(request):
            raise HubError(401, "GatedRepo", "Access to this dataset is restricted")
        commit = self.commit_of(repo, revision)
        entry = commit.tree.get(path)
        if entry is None:
            headers = {"X-Repo-Commit": commit.oid}
            raise HubError(404, "EntryNotFound", "Entry not found", headers=headers)
        etag = entry.key if entry.lfs else entry.oid
        headers = {
            "X-Repo-Commit": commit.oid,
            "ETag": f'"{etag}"',
            "Accept-Ranges": "bytes",
            "Content-Type": "application/octet-stream",
            "Last-Modified": email.utils.formatdate(usegmt=True),
        }
        if entry.lfs:
            headers |= {"X-Linked-ETag": f'"{etag}"', "X-Linked-Size": str(entry.size)}
        if request.command == "HEAD":
            return 200, headers | {"Content-Length": str(entry.size)}, b""
        data = self.blobs[entry.key]
        wanted = re.match(r"bytes=(\d*)-(\d*)$", (request.headers.get("Range") or "").strip())
        if wanted is None:
            return 200, headers, data
        if wanted[1]:
            first = int(wanted[1])
            last = min(int(wanted[2]) if wanted[2] else entry.size - 1, entry.size - 1)
        else:
            first, last = max(0, entry.size - int(wanted[2])), entry.size - 1
        if first > last:
            return 416, {"Content-Range": f"bytes */{entry.size}"}, b""
        headers["Content-Range"] = f"bytes {first}-{last}/{entry.size}"
        return 206, headers, data[first : last + 1]

    # Writing

    def set_ref(
        self, method: str, repo: Repo, kind: str, name: str, data: dict[str, Any]
    ) -> Answer:
        with self.lock:
            if kind == "branch":
                ref, start = f"refs/heads/{name}", data.get("startingPoint", "main")
            else:
                ref, start = f"refs/tags/{data.get('tag', name)}", name
            if method == "DELETE":
                del repo.refs[f"refs/{'heads' if kind == 'branch' else 'tags'}/{name}"]
            elif ref in repo.refs:
                raise HubError(409, message="Reference already exists")
            else:
                repo.refs[ref] = self.commit_of(repo, start).oid
        return as_json({})

    def preupload(self, repo: Repo, revision: str, files: list[dict[str, Any]]) -> Answer:
        tree = self.commit_of(repo, revision).tree
        found = []
        for each in files:
            large = each["path"].lower().endswith(LARGE) or each["size"] > LARGE_BYTES
            item = {"path": each["path"], "uploadMode": "lfs" if large else "regular"}
            current = tree.get(each["path"])
            if current is not None and current.lfs == large:
                item["oid"] = current.key if large else current.oid
            found.append(item | {"shouldIgnore": False})
        return as_json({"files": found})

    def commit(self, repo: Repo, revision: str, body: bytes, *, create_pr: bool) -> Answer:
        lines = [json.loads(line) for line in body.splitlines() if line.strip()]
        header = lines[0]["value"]
        with self.lock:
            base = self.commit_of(repo, revision)
            ref = revision if revision.startswith("refs/") else f"refs/heads/{revision}"
            if not create_pr and ref not in repo.refs:
                raise HubError(400, message="Can only commit to a branch")
            if not create_pr and header.get("parentCommit") not in (None, base.oid):
                raise HubError(412, message="A commit has happened since. Please refresh.")
            tree = dict(base.tree)
            for line in lines[1:]:
                self.apply(tree, line["key"], line["value"])
            if create_pr:
                ref = f"refs/pr/{1 + sum(ref.startswith('refs/pr/') for ref in repo.refs)}"
                repo.refs[ref] = base.oid
            commit = self.new_commit(
                repo, ref, tree, header["summary"], header.get("description", "")
            )
        web = f"{self.endpoint}/{repo.type}s/{repo.id}"
        found = {"success": True, "commitOid": commit.oid, "hookOutput": ""}
        found["commitUrl"] = f"{web}/commit/{commit.oid}"
        if create_pr:
            found["pullRequestUrl"] = f"{web}/discussions/{ref.rsplit('/', 1)[1]}"
        return as_json(found)

    def apply(self, tree: dict[str, Entry], key: str, value: dict[str, Any]) -> None:
        path = value["path"]
        match key:
            case "file":
                data = base64.b64decode(value["content"])
                tree[path] = Entry(self.put(data), len(data), git_oid(data))
            case "lfsFile":
                if value["oid"] not in self.blobs:
                    raise HubError(400, message=f"LFS object {value['oid']} was not uploaded")
                size = len(self.blobs[value["oid"]])
                pointer = (
                    f"version https://git-lfs.github.com/spec/v1\noid sha256:{value['oid']}\n"
                )
                oid = git_oid(f"{pointer}size {size}\n".encode())
                tree[path] = Entry(value["oid"], size, oid, lfs=True)
            case "deletedFile":
                if path not in tree:
                    raise HubError(404, "EntryNotFound", "A file with this name doesn't exist")
                del tree[path]
            case "deletedFolder":
                inside = [each for each in tree if each.startswith(path.rstrip("/") + "/")]
                if not inside:
                    raise HubError(404, "EntryNotFound", "A file with this name doesn't exist")
                for each in inside:
                    del tree[each]
            case _:
                raise HubError(400, message=f"unknown operation {key}")

    def lfs_batch(
        self, request: BaseHTTPRequestHandler, kind: str, repo_id: str, data: dict[str, Any]
    ) -> Answer:
        self.repo(request, kind, repo_id)
        objects = []
        for each in data["objects"]:
            item: dict[str, Any] = {"oid": each["oid"], "size": each["size"]}
            if each["oid"] not in self.blobs:
                upload = {"href": f"{self.endpoint}/_lfs/{each['oid']}", "header": {}}
                verify = {"href": f"{self.endpoint}/_lfs/verify", "header": {}}
                item |= {"authenticated": True, "actions": {"upload": upload, "verify": verify}}
            objects.append(item)
        return as_json({"transfer": "basic", "objects": objects})

    def lfs_object(self, method: str, path: str, body: bytes, data: dict[str, Any]) -> Answer:
        oid = path.rsplit("/", 1)[1]
        if oid == "verify":
            if len(self.blobs.get(data["oid"], b"")) != data["size"]:
                raise HubError(404, message="not found")
            return as_json({})
        if method != "PUT" or hashlib.sha256(body).hexdigest() != oid:
            raise HubError(400, message="sha256 mismatch")
        self.put(body)
        self.received.append(oid)
        return 200, {"ETag": f'"{oid}"'}, b""
