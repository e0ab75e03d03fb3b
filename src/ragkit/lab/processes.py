"""The process itself: how much memory it took, and that it ends when its parent does.

It never starts a process and never ends another one.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from pathlib import Path


def end_with_parent() -> None:
    """Ask the kernel of the system to end this process when its parent dies (Linux; elsewhere nothing happens).

    A DVC stage that outlives a killed DVC would go on writing the outs of a run that nobody waits for.
    """
    if not sys.platform.startswith("linux"):
        return
    parent = os.getppid()
    pr_set_pdeathsig = 1
    ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before we asked
        os.kill(os.getpid(), signal.SIGKILL)


def peak_memory_mib(children: bool = True) -> int:
    """Largest resident memory of this process so far, with `children` plus that of its largest ended child, in MiB."""
    unit = 1024 if sys.platform == "darwin" else 1  # ru_maxrss: bytes on macOS, KiB elsewhere
    ended = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // unit if children else 0
    return round((_own_peak_kib(unit) + ended) / 1024)


def _own_peak_kib(unit: int) -> int:
    # VmHWM belongs to the program image; ru_maxrss also counts the parent's image before exec.
    status = Path("/proc/self/status")
    if status.is_file():
        for line in status.read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // unit
