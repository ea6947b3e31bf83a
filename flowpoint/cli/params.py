"""The option `--param K=V` of the commands that read a job file."""

from __future__ import annotations

import click


def _params(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """K=V, several times; the last one of a name counts."""
    params = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{value!r} is not of the form K=V", ctx, param)
        params[name] = text
    return params


params_option = click.option(
    "--param", "params", metavar="K=V", multiple=True, callback=_params, help="Hand to the job's build()."
)
