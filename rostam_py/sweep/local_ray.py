"""Ray of this machine alone: it listens on the loopback interface, asks for a token, and ends with this process.

What ``ray.init`` starts by itself listens on every interface, and runs what anyone who reaches it sends. Inside
``loopback_only`` Ray takes the loopback interface as it does on macOS, and a token that only its own processes know.
Its files lie in a folder of its own, whose lock this process holds: what a killed process left, processes and files, is
found by the free lock and ended before the next start.

Example:
    with loopback_only() as folder:
        ray.init(address="local", _temp_dir=str(folder))
        check_loopback(folder)
"""

import contextlib
import fcntl
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rostam_py.errors import ConfigError
from rostam_py.sweep.processes import end_processes, listening_beyond_loopback, processes_using

_PREFIX = "rostam-ray-"
_NEW = f".{_PREFIX}"  # until it is locked
_TEMPORARY = "RAY_TMPDIR"  # a path of more than 16 letters makes Ray's sockets' paths too long: not $TMPDIR
_AUTHENTICATION = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")


@contextlib.contextmanager
def loopback_only() -> Iterator[Path]:
    """Let a Ray that is started inside listen on loopback alone and ask for a new token; yield a folder for its files.

    On leaving, whatever of it still runs is ended, and the folder is deleted.
    Raises: ConfigError for a release of Ray that knows no tokens.
    """
    end_abandoned()
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(_locked_folder())
        stack.callback(end_processes, folder)
        stack.enter_context(_authentication({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}))
        stack.enter_context(_loopback_address())
        yield folder


@contextlib.contextmanager
def stopped_after() -> Iterator[None]:
    """Stop Ray in the end, whoever started it inside."""
    import ray

    try:
        yield
    finally:
        ray.shutdown()


def check_loopback(folder: Path) -> None:
    """Raise ConfigError if a process of the Ray in a folder, or this one, listens beyond loopback."""
    if exposed := listening_beyond_loopback([os.getpid(), *processes_using(folder)]):
        import ray

        raise ConfigError(
            f"the Ray that sweep.backend=ray started listens on {', '.join(exposed)}, which others can reach; release"
            f" {ray.__version__} of Ray is not one that rostam can keep to this machine: take sweep.backend=process"
        )


def join_with_token() -> None:
    """Let ``ray.init`` send the user's token, where there is one; Ray by itself does so only if RAY_AUTH_MODE=token.

    A cluster that asks for none takes one as well.
    """
    if "RAY_AUTH_MODE" not in os.environ and _token_loader().has_token(ignore_auth_mode=True):
        os.environ["RAY_AUTH_MODE"] = "token"
        _reread_authentication()


def end_abandoned() -> None:
    """End what killed processes of this user left of their Ray: processes, and folders."""
    for folder in _root().glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # another's, or another process is at it
            if folder.stat().st_uid != os.getuid():
                continue
            with _lock(folder):
                end_processes(folder)
                shutil.rmtree(folder, ignore_errors=True)


def _root() -> Path:
    return Path(os.environ.get(_TEMPORARY, "/tmp"))


@contextlib.contextmanager
def _locked_folder() -> Iterator[Path]:
    """Yield a new folder that nobody else may enter, and delete it."""
    try:
        new = Path(tempfile.mkdtemp(prefix=_NEW, dir=_root()))
    except OSError as error:
        raise ConfigError(
            f"Ray's files cannot be written to {_root()} ({error.strerror}); set {_TEMPORARY} to a folder of at most 16"
            " letters that can, or take sweep.backend=process"
        ) from error
    with _lock(new):
        folder = new.rename(new.with_name(new.name.removeprefix(".")))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Hold a folder's lock, which the kernel frees however this process ends. Raises: OSError if it is held."""
    with open(folder / "lock", "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


@contextlib.contextmanager
def _authentication(variables: dict[str, str]) -> Iterator[None]:
    """Set Ray's variables of authentication, and no others of them, and what was set before afterwards."""
    before = {name: os.environ[name] for name in _AUTHENTICATION if name in os.environ}
    try:
        _set_authentication(variables)
        yield
    finally:
        _set_authentication(before)


def _set_authentication(variables: dict[str, str]) -> None:
    for name in _AUTHENTICATION:
        os.environ.pop(name, None)
    os.environ.update(variables)
    _reread_authentication()


def _reread_authentication() -> None:
    """Let Ray, which reads these variables once a process, read them again, as its own ``ray.init`` does."""
    loader = _token_loader()
    from ray import _raylet

    core: Any = _raylet
    core.Config.initialize("")
    loader.reset_cache()


def _token_loader() -> Any:
    import ray
    from ray import _raylet

    core: Any = _raylet
    try:
        loader = core.AuthenticationTokenLoader
    except AttributeError as error:
        raise ConfigError(
            f"sweep.backend is 'ray', but Ray {ray.__version__} knows no token authentication: anyone could use the Ray"
            " of this machine; install ray>=2.60, or take sweep.backend=process"
        ) from error
    return loader.instance()


@contextlib.contextmanager
def _loopback_address() -> Iterator[None]:
    """Let Ray take 127.0.0.1 as this machine's address, as where it is not built for clusters (macOS, Windows)."""
    from ray._private import ray_constants

    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before
