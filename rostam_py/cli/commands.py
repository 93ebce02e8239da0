"""Commands: what each takes besides --json and --help, and where it is; nothing is imported before it runs.

No dataclasses here: help and completion would wait for that module alone.
"""

import importlib
import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from rostam_py.cli.capture_options import OPTIONS


class Command(NamedTuple):
    """A command.

    target: "module:function" of (arguments, whether JSON is wanted), which returns the exit status. options: of its
    own, each with the target that takes over, "" where the usual one reads it. times_this_machine: what runs here is
    measured, so that libraries keep the threads they take by themselves. takes_program: behind "--" stands a program of
    the user's, whose words are its own.
    """

    target: str
    options: Mapping[str, str] = MappingProxyType({})
    times_this_machine: bool = False
    takes_program: bool = False

    def run(self, arguments: list[str], as_json: bool) -> int:
        """Import the function and return its exit status.

        NumPy's linear algebra gets one thread, unless the environment says otherwise: systems of some 500 unknowns take
        5 ms on one, and 150 ms or more on several where other processes keep the cores busy (measured, two cores).
        """
        if not self.times_this_machine:
            os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        taken = [option for option in arguments if self.options.get(option)]
        target = self.options[taken[0]] if taken else self.target
        module, _, name = target.partition(":")
        status: int = getattr(importlib.import_module(module), name)(
            [one for one in arguments if one not in taken], as_json
        )
        return status


COMMANDS = {
    "run": Command("rostam_py.cli.run:run", {"--multirun": "rostam_py.cli.multirun:multirun"}),
    "import": Command("rostam_py.cli.import_launch:import_launch"),
    "export": Command("rostam_py.cli.export:export"),
    "search": Command("rostam_py.cli.search:search"),
    "fleet": Command("rostam_py.cli.fleet:fleet"),
    "sweep": Command("rostam_py.cli.sweep:sweep", {"--dry-run": ""}),
    "capture": Command(
        "rostam_py.cli.capture:capture_command", MappingProxyType(dict.fromkeys(OPTIONS, "")), takes_program=True
    ),
    "collective": Command("rostam_py.cli.collective:collective_command"),
    "flows": Command("rostam_py.cli.flows:flows"),
    "check": Command("rostam_py.cli.check:check"),
    "compare": Command("rostam_py.cli.compare:compare"),
    "validate": Command("rostam_py.cli.validate:validate_command"),
    "reproduce": Command("rostam_py.cli.reproduce:reproduce", {"--all": ""}),
    "report": Command("rostam_py.cli.report:report"),
    "list": Command("rostam_py.cli.listing:list_kinds"),
    "profile": Command("rostam_py.cli.profile:profile_model", times_this_machine=True),
    "cache": Command("rostam_py.cli.cache:cache"),
    "demo": Command("rostam_py.cli.demo:demo"),
    "completion": Command("rostam_py.cli.completion:completion"),
}
