"""The APIs and layouts that are known, and their programs, as rows of tables.

Writing the programs of all versions takes a while and an input has few of them, so a program is added when a
kernel asks for it (PROGRAM). What was written is kept: each part of an input has tables of its own.
"""

from __future__ import annotations

from functools import lru_cache

from kwsniff.spec.instructions import JUMPS, Instruction, Program, program
from kwsniff.spec.load import Api, Catalog, catalog
from kwsniff.spec.model import Field

ApiRow = dict[str, int]
LayoutRow = dict[str, int]


def api_rows() -> tuple[list[ApiRow], list[LayoutRow]]:
    """Rows of `apis`, one for each key up to the highest, and of `layouts`; to be read only."""
    return _rows_of(catalog())


@lru_cache(maxsize=1)
def _rows_of(dissectors: Catalog) -> tuple[list[ApiRow], list[LayoutRow]]:
    apis: list[ApiRow] = []
    layouts: list[LayoutRow] = []
    known = dissectors.apis
    for key in range(max(known) + 1):
        api = known.get(key)
        if api is None:
            apis.append({"first": -1, "low": 0, "high": -1})
            continue
        apis.append({"first": len(layouts), "low": api.min_version, "high": api.max_version})
        first = len(layouts)
        layouts.extend(
            _layout_row(api, version, first) for version in range(api.min_version, api.max_version + 1)
        )
    return apis, layouts


def _layout_row(api: Api, version: int, first: int) -> LayoutRow:
    header = api.request_header_version(version)
    return {
        "key": api.key,
        "version": version,
        "request": -1,
        "response": -1,
        "client_id": int(header >= 1),
        "flexible_request": int(header >= 2),
        "flexible_response": int(api.response_header_version(version) >= 1),
        "downgraded": first if api.may_be_downgraded(version) else -1,
        "tokens": int(api.starts_raw_tokens(version)),
        "acks_zero": int(api.may_have_role("acks") and _has(api.request.fields, "acks")),
        "answered_zero": int(api.may_answer_with_zero(version)),
        "held": int(api.held_by_broker * 1e9),
    }


def _has(fields: tuple[Field, ...], role: str) -> bool:
    return any(role in field.roles or _has(field.fields, role) for field in fields)


def programs_of(key: int, version: int) -> tuple[Program, Program]:
    """Of the request and of the response of one version, which must be known."""
    return _written(catalog(), key, version)


@lru_cache(maxsize=256)
def _written(dissectors: Catalog, key: int, version: int) -> tuple[Program, Program]:
    api = dissectors.api(key)
    return program(api.request.at(version)), program(api.response.at(version))


def program_row(found: Program, start: int) -> dict[str, int]:
    """The row of `programs`; its code stands from row `start` on."""
    return {"start": start, "registers": found.registers, "flags": found.flags, "columns": found.columns}


def code_rows(found: Program, start: int) -> list[Instruction]:
    """Rows of `code`, with jumps that count from the beginning of that table."""
    return [_placed(instruction, start) for instruction in found.code]


def _placed(instruction: Instruction, start: int) -> Instruction:
    jump = JUMPS.get(instruction[0], 0)
    op, a, b, c, d = (word + start if jump and at == jump else word for at, word in enumerate(instruction))
    return op, a, b, c, d
