"""Judges a stream graph: raises PlanError with one sentence that names the operator, or says nothing.

Each `_check_...` looks at one thing. What can be wrong with one operator is found before what can be wrong with the
whole, so that the message points at the cause.

Invariant: a graph that passes can be compiled; `plan.compile` calls `validate` first and then trusts it.

Not here: configuration (`launch.config`), keys and records (found while the job runs).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Final

from flowpoint.errors import PlanError
from flowpoint.model.key_groups import MAX_PARALLELISM_LIMIT
from flowpoint.model.path_names import PATH_NAME_RULE, is_path_name
from flowpoint.model.plan import OperatorKind, Partition
from flowpoint.model.texts import with_article
from flowpoint.plan.arguments import METHODS, RECORD, TWO_VALUES, check_arguments
from flowpoint.plan.graph import GraphOperator, StreamGraph, function_name
from flowpoint.plan.states import declared_states, misplaced_states

_FUNCTION_METHODS: Final = ("on_timer", "open", "close", "merge")
_SOURCE_METHODS: Final = ("splits", "open")
_SINK_METHODS: Final = ("open", "commit", "abort")


def validate(graph: StreamGraph, parallelism: int, max_parallelism: int) -> None:
    """Check a whole graph against the settings it will run with.

    Raises:
        PlanError: the first thing that is wrong.
    """
    check_path_name("the job's name", graph.job)
    _check_max_parallelism(max_parallelism)
    _check_parallelism("the job's parallelism", parallelism, max_parallelism)
    _check_types(graph)
    for operator in graph.operators:
        _check_operator(operator, max_parallelism)
    for key in graph.keys:
        _check_callable(f"key_by at {key.place}", key.function)
    _check_ends(graph)
    _check_uids(graph)
    _check_keys_used(graph)


def check_path_name(what: str, name: object) -> None:
    """Check a name that becomes part of file names.

    Raises:
        PlanError: it is empty, too long, or has a character that cannot be in every path.
    """
    if not isinstance(name, str):
        raise PlanError(f"{what} is {name!r}, of type {type(name).__name__}: it must be a string")
    if not is_path_name(name):
        raise PlanError(f"{what} {name!r} cannot be part of a path: {PATH_NAME_RULE}")


def _check_max_parallelism(max_parallelism: int) -> None:
    if not 1 <= max_parallelism <= MAX_PARALLELISM_LIMIT:
        raise PlanError(f"max_parallelism is {max_parallelism}: it must be between 1 and {MAX_PARALLELISM_LIMIT}")


def _check_parallelism(what: str, parallelism: object, max_parallelism: int) -> None:
    if not isinstance(parallelism, int) or isinstance(parallelism, bool):
        raise PlanError(f"{what} is {parallelism!r}: it must be a whole number")
    if not 1 <= parallelism <= max_parallelism:
        raise PlanError(
            f"{what} is {parallelism}: it must be between 1 and max_parallelism, which is {max_parallelism}"
        )


def _check_types(graph: StreamGraph) -> None:
    for tp in graph.types:
        if not isinstance(tp, type):
            raise PlanError(
                f"types= of job {graph.job!r} has {tp!r}, which is not a class: list the classes of records"
            )


def _check_operator(operator: GraphOperator, max_parallelism: int) -> None:
    label = operator.label
    if operator.uid is not None:
        check_path_name(f"the uid of {operator.kind.method} at {operator.place},", operator.uid)
    if operator.name is not None and (not isinstance(operator.name, str) or not operator.name.isprintable()):
        raise PlanError(f"{label} has the name {operator.name!r}: a name must be printable text on one line")
    if operator.parallelism is not None:
        _check_parallelism(f"the parallelism of {label}", operator.parallelism, max_parallelism)
    _check_function(label, operator)


def _check_function(label: str, operator: GraphOperator) -> None:  # one switch
    match operator.kind:
        case OperatorKind.SOURCE:
            _check_factory(label, "Source", operator.function, _SOURCE_METHODS)
        case OperatorKind.SINK:
            _check_factory(label, "Sink", operator.function, _SINK_METHODS)
        case OperatorKind.PROCESS:
            _check_process_function(label, operator.function)
            _check_keyed_states_only(label, operator.function)
        case OperatorKind.PLAIN_PROCESS:
            _check_plain_process_function(label, operator.function)
        case OperatorKind.CO_PROCESS | OperatorKind.PLAIN_CO_PROCESS:
            _check_connection(operator)
        case OperatorKind.AGGREGATE:
            _check_aggregate(label, operator.function)
        case OperatorKind.ASSIGN_TIMESTAMPS:
            _check_callable(label, operator.function.function)
        case OperatorKind.MAP | OperatorKind.FILTER | OperatorKind.REDUCE:
            two = operator.kind is OperatorKind.REDUCE
            _check_callable(label, operator.function, TWO_VALUES if two else RECORD)
            _check_returns(label, operator)
        case OperatorKind.COUNT:
            pass
        case OperatorKind.SUM | OperatorKind.MIN | OperatorKind.MAX if operator.function is None:
            pass
        case _:
            _check_callable(label, operator.function)


def _check_factory(label: str, role: str, factory: object, methods: tuple[str, ...]) -> None:
    if inspect.isclass(factory):
        raise PlanError(f"{label} got the class {factory.__name__}: pass an instance, {factory.__name__}(...)")
    missing = [name for name in methods if not _has_member(factory, name)]
    if missing:
        raise PlanError(
            f"{label} got {with_article(type(factory).__name__)}, which is not a {role}: it has no {', '.join(missing)};"
            f" a {role} has {', '.join(methods)}"
        )


def _has_member(factory: object, name: str) -> bool:
    # Looked up on the class, so that a property is seen without being run.
    return getattr(type(factory), name, None) is not None or name in getattr(factory, "__dict__", {})


def _check_callable(label: str, function: object, arguments: tuple[str, ...] = RECORD) -> None:
    if not callable(function):
        hint = ""
        if hasattr(function, "process"):
            hint = "; a process function goes to key_by(...).process(...), or without keys to process(...)"
        raise PlanError(f"{label} got {_describe(function)}, which is not callable: pass a function{hint}")
    if _is_async(function):
        raise PlanError(
            f"{label} got the async function {function_name(function)!r}: only plain functions are supported yet"
        )
    check_arguments(label, function, arguments)


def _check_returns(label: str, operator: GraphOperator) -> None:
    """Refuse a generator function where the result of a call is the record, or a condition."""
    function = operator.function
    called = function if inspect.isroutine(function) or inspect.isclass(function) else type(function).__call__
    if inspect.isgeneratorfunction(function) or inspect.isgeneratorfunction(called):
        raise PlanError(
            f"{label} got the generator function {function_name(function)!r}, of which each call makes a generator and no"
            f" result: use return in place of yield{', or flat_map' if operator.kind is OperatorKind.MAP else ''}"
        )


def _is_async(function: Callable[..., object]) -> bool:
    # Of a callable object, the method that is called; inspect looks through functools.partial by itself.
    candidates = [function] if inspect.isclass(function) else [function, type(function).__call__]
    return any(inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each) for each in candidates)


def _check_process_function(label: str, function: object) -> None:
    advice = "a KeyedProcessFunction, or use map, filter or flat_map before key_by"
    _check_methods(label, function, ("process",), advice)
    _check_states(label, function)


def _check_plain_process_function(label: str, function: object) -> None:
    _check_methods(label, function, ("process",), "a ProcessFunction, or use map, filter or flat_map")
    name = type(function).__name__
    if _is_keyed(function):
        raise PlanError(
            f"{label}: {name} is a KeyedProcessFunction, and the stream has no key: call .key_by(...) before .process(...)"
        )
    if hasattr(function, "on_timer"):
        raise PlanError(f"{label}: {name} has on_timer, and timers belong to a key: use key_by(...) before process")
    _check_states(label, function)
    for state in declared_states(function):
        raise PlanError(
            f"{label}: {name} declares the state {state.name!r}, and the stream has no key it could belong to: use"
            " key_by(...) before process"
        )


def _is_keyed(function: object) -> bool:
    # By name: the base classes of authors stand above the plan.
    bases = [(base.__module__, base.__name__) for base in type(function).__mro__]
    return any(module.startswith("flowpoint.") and name == "KeyedProcessFunction" for module, name in bases)


def _check_connection(operator: GraphOperator) -> None:
    """Of an operator with two inputs: how they fit together, its function, and whether its states can be kept."""
    label, function = operator.label, operator.function
    keyed = [operator.key is not None, operator.second_key is not None]
    broadcast = [_is_broadcast(operator, port) for port in (0, 1)]
    if all(broadcast):
        raise PlanError(f"{label} connects two broadcast streams: broadcast one of them, and key the other or leave it")
    if any(keyed) and not all(keyed) and not any(broadcast):
        raise PlanError(
            f"{label} connects a keyed stream with one that is neither keyed nor broadcast, so its records would not"
            " meet those of their key: use key_by(...) or broadcast() on it"
        )
    _check_methods(label, function, ("process1", "process2"), "a CoProcessFunction")
    _check_states(label, function)
    name = type(function).__name__
    for state in declared_states(function):
        if state.is_broadcast and not any(broadcast):
            raise PlanError(
                f"{label}: {name} declares the broadcast state {state.name!r}, and neither input is a broadcast stream:"
                " use connect(other.broadcast())"
            )
        if not state.is_broadcast and not any(keyed):
            raise PlanError(
                f"{label}: {name} declares the state {state.name!r}, and neither input has a key it could belong to:"
                " use key_by(...) before connect"
            )


def _is_broadcast(operator: GraphOperator, port: int) -> bool:
    return any(link.partition is Partition.BROADCAST for link in operator.links if link.port == port)


def _check_aggregate(label: str, function: object) -> None:
    _check_methods(label, function, ("create", "add", "result"), "an Aggregate")


def _check_methods(label: str, function: object, wanted: tuple[str, ...], advice: str) -> None:
    """Check that it is an object with these methods, and that none of those it may have is async."""
    if inspect.isclass(function):
        raise PlanError(f"{label} got the class {function.__name__}: pass an instance, {function.__name__}(...)")
    for method in wanted:
        if not callable(getattr(function, method, None)):
            raise PlanError(
                f"{label} got {_describe(function)}, which has no {method} method: pass an instance of {advice}"
            )
    name = type(function).__name__
    for method in (*wanted, *_FUNCTION_METHODS):
        member = getattr(function, method, None)
        if member is not None and _is_async(member):
            raise PlanError(f"{label}: {name}.{method} is an async function: only plain functions are supported yet")
        if callable(member) and method in METHODS:
            check_arguments(f"{label}: {name}.{method}", member, METHODS[method])


def _check_keyed_states_only(label: str, function: object) -> None:
    for state in declared_states(function):
        if state.is_broadcast:
            raise PlanError(
                f"{label}: {type(function).__name__} declares the broadcast state {state.name!r}, and there is no"
                " broadcast stream: use connect(other.broadcast()) and a CoProcessFunction"
            )


def _check_states(label: str, function: object) -> None:
    name = type(function).__name__
    for misplaced in misplaced_states(function):
        raise PlanError(
            f"{label}: {name} sets self.{misplaced.attribute} to the state {misplaced.name!r}:"
            f" declare it in the class body, {misplaced.attribute} = ...State({misplaced.name!r})"
        )
    attribute_of: dict[str, str] = {}
    for state in declared_states(function):
        check_path_name(f"{label}: the state name {name}.{state.attribute} =", state.name)
        if state.name in attribute_of:
            raise PlanError(
                f"{label}: {name} declares the state {state.name!r} twice, as {attribute_of[state.name]} and"
                f" {state.attribute}: give each its own name"
            )
        attribute_of[state.name] = state.attribute


def _check_ends(graph: StreamGraph) -> None:
    kinds = {operator.kind for operator in graph.operators}
    if OperatorKind.SOURCE not in kinds:
        raise PlanError(f"job {graph.job!r} has no source: begin with job.source(...)")
    if OperatorKind.SINK not in kinds:
        raise PlanError(f"job {graph.job!r} has no sink, so nothing would come out of it: end a stream with .sink(...)")


def _check_uids(graph: StreamGraph) -> None:
    owner: dict[str, GraphOperator] = {}
    for operator in graph.operators:
        if operator.uid is None:
            continue
        # Some file systems fold case: two such uids would share their files there.
        folded = operator.uid.casefold()
        if folded in owner:
            raise PlanError(
                f"two operators have the uid {operator.uid!r}: {owner[folded].label} and {operator.label};"
                " give each its own uid (upper and lower case count as the same)"
            )
        owner[folded] = operator


def _check_keys_used(graph: StreamGraph) -> None:
    used = {id(key) for operator in graph.operators for key in (operator.key, operator.second_key)}
    for key in graph.keys:
        if id(key) not in used:
            raise PlanError(
                f"{key.name} is followed by no operator: add count, sum, reduce, process or map, or remove it"
            )


def _describe(thing: object) -> str:
    """For messages: functions by name, anything else by its type, never by address."""
    return f"the function {function_name(thing)!r}" if inspect.isroutine(thing) else with_article(type(thing).__name__)
