"""Imports the modules it is started with once, then runs each script it is told about in a fork of itself.

It is given a listening socket, and ends when the last connection is closed. A connection sends one request a line:
``{"argv": [str], "folder": str, "stdin": str, "ranks": [{name: value}]}``, where ``argv`` begins with a path or with
``-m`` and a module, and ``ranks`` has the environment of each fork. It gets one answer a line, a list with
``{"status": int, "stdout": str, "stderr": str}`` for each fork.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import tempfile
from pathlib import Path

from .place import alone_in


def serve(listener: socket.socket) -> None:
    """Answer each request in a fork, so that connections do not wait for each other."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # forks that answered leave nothing behind
    connections: list[socket.socket] = []
    while True:
        for ready in select.select([listener, *connections], [], [])[0]:
            if ready is listener:
                connections.append(listener.accept()[0])
            elif request := _line(ready):
                _answer_in_fork(ready, request)
            else:
                connections.remove(ready)
                ready.close()
        if not connections and _leave(listener):
            return


def _line(connection: socket.socket) -> bytes:
    """The next line, or nothing where the connection was closed. Nobody sends two before an answer."""
    received = b""
    while not received.endswith(b"\n"):
        try:
            part = connection.recv(1 << 16)
        except ConnectionResetError:
            return b""
        if not part:
            return b""
        received += part
    return received


def _leave(listener: socket.socket) -> bool:
    """Give up the socket, unless somebody is about to connect."""
    path = Path(listener.getsockname())
    with alone_in(path.parent):
        if select.select([listener], [], [], 0)[0]:
            return False
        path.unlink()
        return True


def _answer_in_fork(connection: socket.socket, request: bytes) -> None:
    if os.fork() == 0:
        try:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            connection.sendall(json.dumps(run(**json.loads(request))).encode() + b"\n")
        finally:
            os._exit(0)


def run(argv: list[str], folder: str, stdin: str, ranks: list[dict[str, str]]) -> list[dict[str, object]]:
    """Run ``argv`` as the main program, in one child process for each of ``ranks``, all at the same time."""
    with tempfile.TemporaryDirectory() as texts:
        given = Path(texts, "stdin")
        given.write_text(stdin)
        streams = [[Path(texts, f"{name}{rank}") for name in ("stdout", "stderr")] for rank in range(len(ranks))]
        children = [
            _fork(argv, folder, environment, [given, *files]) for environment, files in zip(ranks, streams, strict=True)
        ]
        statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        return [
            {"status": status, "stdout": out.read_text(), "stderr": err.read_text()}
            for status, (out, err) in zip(statuses, streams, strict=True)
        ]


def _fork(argv: list[str], folder: str, environment: dict[str, str], streams: list[Path]) -> int:
    child = os.fork()
    if child == 0:
        _become(argv, folder, environment, streams)
    return child


def _become(argv: list[str], folder: str, environment: dict[str, str], streams: list[Path]) -> None:
    status = 1
    try:
        for descriptor, stream in enumerate(streams):
            os.dup2(os.open(stream, os.O_WRONLY | os.O_CREAT if descriptor else os.O_RDONLY), descriptor)
        sys.stdin = os.fdopen(0)
        sys.stdout, sys.stderr = (os.fdopen(descriptor, "w", buffering=1) for descriptor in (1, 2))
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        _main(argv)
        status = 0
    except SystemExit as leave:
        status = leave.code if isinstance(leave.code, int) else int(leave.code is not None)
        if isinstance(leave.code, str):
            print(leave.code, file=sys.stderr)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _main(argv: list[str]) -> None:
    """What ``python`` does with ``argv``."""
    if argv[0] == "-m":
        sys.argv[:] = argv[1:]
        sys.path[0] = os.getcwd()
        runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
        return
    sys.argv[:] = argv
    sys.path[0] = str(Path(argv[0]).parent)
    runpy.run_path(argv[0], run_name="__main__")


if __name__ == "__main__":
    for module in sys.argv[2:]:
        importlib.import_module(module)
    gc.freeze()
    serve(socket.socket(fileno=int(sys.argv[1])))
