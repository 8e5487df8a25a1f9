"""What the notation allows, and that everything else is refused with file and line."""

from __future__ import annotations

import re

import pytest

from kwsniff.spec import parse
from kwsniff.spec.load import Catalog, catalog
from kwsniff.spec.model import NO_VERSIONS, Versions

GOOD = """\
api 99 Example   versions 0-5   flexible 3+   kafka4 2-5   alias Sample   request-header-0 0
# What it is for.

request
  topics        []?1+
    name        string          @topic   # a name
    partitions  []int32  0-2,4+
  owner         {}?      3+
    id          string?4+
  # a comment of its own
  note          string?  3+     tag 2  alias remark,word   # what to say
  client        string?         never-compact

response
  error_code    int16           @error
"""


def test_a_good_dissector_says_what_it_means():
    head, request, response = parse.api(GOOD, "good.kdef")
    assert (head.key, head.name, head.aliases, head.doc) == (99, "Example", ("Sample",), "What it is for.")
    assert (str(head.versions), str(head.flexible), str(head.kafka4)) == ("0-5", "3-5", "2-5")
    topics, owner, note, client = request.fields
    assert (topics.type, topics.array, str(topics.nullable)) == ("struct", True, "1-5")
    assert topics.fields[0].roles == ("topic",)
    assert topics.fields[0].doc == "a name"
    assert (topics.fields[1].type, str(topics.fields[1].versions)) == ("int32", "0-2,4-5")
    assert (owner.type, owner.array, owner.nullable) == ("struct", False, owner.versions)
    assert (str(owner.fields[0].versions), str(owner.fields[0].nullable)) == ("3-5", "4-5")
    assert (note.tag, note.line) == (2, 11)
    assert (note.aliases, note.doc) == (("remark", "word"), "what to say; or remark; or word")
    assert not client.compact
    assert response.fields[0].roles == ("error",)


def test_a_layout_holds_the_fields_of_its_version_only():
    _, request, _ = parse.api(GOOD, "good.kdef")
    assert [item.name for item in request.at(0).items] == ["topics", "client"]
    assert [item.name for item in request.at(3).items] == ["topics", "owner", "note", "client"]
    assert [item.name for item in request.at(3).items[0].items] == ["name"]
    assert [item.nullable for item in (request.at(0).items[0], request.at(1).items[0])] == [False, True]
    assert (request.at(2).flexible, request.at(3).flexible) == (False, True)


def changed(old: str, new: str) -> str:
    assert GOOD.count(old) == 1
    return GOOD.replace(old, new)


BAD = {
    "unknown type": (changed("int16 ", "int17 "), 15, "unknown type 'int17'"),
    "an array without brackets closed": (changed("[]int32", "[int32"), 7, "unknown type"),
    "versions glued to a type that cannot be null": (changed("[]int32", "int323+"), 7, "unknown type"),
    "a bare question mark": (changed("[]?1+", "?"), 5, "unknown type"),
    "a null number": (changed("int16 ", "int16?"), 15, "int16 cannot be null"),
    "bad range": (changed("0-2,4+", "0-2,x"), 7, "unexpected '0-2,x'|no version range"),
    "descending range": (changed("0-2,4+", "2-0"), 7, "does not ascend"),
    "overlapping ranges": (changed("0-2,4+", "0-2,2+"), 7, "does not ascend"),
    "versions outside the message": (changed("0-2,4+", "0-6"), 7, "versions 0-6 lie outside 0-5"),
    "open versions beyond the message": (changed("0-2,4+", "7+"), 7, "does not ascend within 0-5"),
    "versions outside the struct": (changed("string?4+", "string  2+"), 9, "versions 2\\+ lie outside 3-5"),
    "nullable outside the field": (changed("string?4+", "string?1+"), 9, "lie outside"),
    "odd indentation": (changed("    name ", "   name "), 6, "indentation of 3 spaces"),
    "a tab": (changed("    name ", "\tname "), 6, "tab"),
    "indented twice": (changed("    name ", "      name "), 6, "more than one level"),
    "a field below a number": (changed("  client ", "    client "), 12, "note is no struct"),
    "a struct without fields": (changed("    id          string?4+\n", ""), 8, "struct owner has no fields"),
    "an alias without a name": (changed("alias remark,word", "alias"), 11, "'alias' needs other names"),
    "an alias that is no name": (changed("remark,word", "remark,"), 11, "'alias' needs other names"),
    "unknown role": (changed("@topic", "@subject"), 6, "unknown role @subject, expected one of @error"),
    "a role of another type": (
        changed("int16           @error", "int32 @error"),
        15,
        "needs int16, not int32",
    ),
    "a role twice": (changed("@topic", "@topic @topic"), 6, "given twice"),
    "a stray word": (changed("@topic", "topic"), 6, "unexpected 'topic'"),
    "a field twice": (changed("client ", "note "), 12, "second field note, the first is in line 11"),
    "a tag twice": (changed("string?         never-compact", "string 3+ tag 2"), 12, "tag 2 is that of note"),
    "a tag without number": (changed("tag 2", "tag"), 11, "'tag' needs a number"),
    "a tag in versions without tags": (changed("3+     tag 2", "2+     tag 2"), 11, "not all flexible"),
    "a bad name": (changed("  note ", "  Note "), 11, "'Note' is no field name"),
    "a name alone": (
        changed("  client        string?         never-compact", "  client"),
        12,
        "expected 'name type",
    ),
    "unknown clause": (changed("alias Sample", "nickname"), 1, "unknown clause 'nickname'"),
    "a clause twice": (changed("alias Sample", "flexible 3+"), 1, "clause 'flexible' given twice"),
    "a clause without value": (changed("alias Sample   request-header-0 0", "alias"), 1, "has no value"),
    "no versions": (changed("versions 0-5   ", ""), 1, "clause 'versions' is missing"),
    "endless versions": (changed("versions 0-5", "versions 0+"), 1, "must have an end"),
    "versions beyond int16": (changed("versions 0-5", "versions 0-99999"), 1, "lie outside|beyond"),
    "flexible beyond the versions": (changed("flexible 3+", "flexible 9+"), 1, "does not ascend within 0-5"),
    "no api line": (changed("api 99 Example", "message Example 99"), 1, "expected 'api KEY NAME"),
    "a key that is no number": (changed("api 99", "api x"), 1, "expected 'api KEY NAME"),
    "an unknown section": (changed("response\n", "reply\n"), 14, "expected 'request' or 'response'"),
    "a section twice": (changed("response\n", "request\n"), 14, "second request"),
    "a section missing": (GOOD[: GOOD.index("response")], 12, "no response in this file"),
    "fields before a section": (changed("request\n  topics", "  topics"), 4, "belongs to nothing"),
    "an empty file": ("# nothing\n", 1, "empty dissector"),
}


BAD_DATA = {
    "no data line": ("date X versions 0\n", 1, "expected 'data NAME"),
    "a message twice": ("data X versions 0\ndata X versions 0\n", 2, "second X"),
    "a record type that is no number": ("data X versions 0 record y\n", 1, "is no number"),
    "an unknown clause": ("data X versions 0 kafka4 0\n", 1, "unknown clause"),
    "a bad field": ("data X versions 0\n  a int9\n", 2, "unknown type"),
}


BAD_ERRORS = {
    "no number": ("NONE 0\n", 1, "expected 'CODE NAME"),
    "no name": ("0 none\n", 1, "expected 'CODE NAME"),
    "a lone word": ("0\n", 1, "expected 'CODE NAME"),
    "another flag": ("0 NONE sometimes\n", 1, "unexpected 'sometimes'"),
    "a code twice": ("0 NONE\n0 SOME\n", 2, "second 0 SOME"),
    "a name twice": ("0 NONE\n1 NONE\n", 2, "second 1 NONE"),
}


def test_a_catalog_refuses_two_files_for_one_key(tmp_path):
    for name in ("099_example.kdef", "099_sample.kdef"):
        (tmp_path / name).write_text(GOOD)
    with pytest.raises(parse.DissectorError, match="two files for one API key"):
        Catalog(tmp_path)


def test_a_catalog_reads_a_file_whole_only_when_asked_for_its_messages(tmp_path):
    (tmp_path / "099_example.kdef").write_text(changed("int16 ", "int17 "))
    found = Catalog(tmp_path)
    assert found.api(99).name == "Example"
    with pytest.raises(parse.DissectorError, match=r"^099_example\.kdef:15: "):
        _ = found.api(99).request


def test_file_names_say_key_and_name():
    for api in catalog().apis.values():
        assert api.path.name.startswith(f"{api.key:03d}_")
        assert api.path.stem[4:].replace("_", "") == api.name.lower()


def test_apis_are_found_by_name_former_name_and_key():
    assert catalog().named("fetch").key == 1
    assert catalog().named("ListClientMetricsResources").name == "ListConfigResources"
    assert catalog().named("18").name == "ApiVersions"
    with pytest.raises(KeyError):
        catalog().named("Fletch")


def test_version_sets_know_their_order_and_write_themselves():
    found = Versions(((0, 2), (4, 4)))
    assert list(found) == [0, 1, 2, 4]
    assert (found.first, found.last, str(found), 3 in found) == (0, 4, "0-2,4", False)
    assert Versions(((1, 2),)) <= found
    assert not NO_VERSIONS
    assert str(NO_VERSIONS) == "none"


READERS = (
    (parse.api, "099_bad.kdef", BAD),
    (parse.data, "bad.kdef", BAD_DATA),
    (parse.errors, "errors.kdef", BAD_ERRORS),
)
REFUSED = [
    pytest.param(read, file, *case, id=f"{file}-{name}")
    for read, file, cases in READERS
    for name, case in cases.items()
]


@pytest.mark.parametrize(("read", "file", "text", "line", "message"), REFUSED)
def test_a_bad_file_is_refused_with_its_name_and_line(read, file, text, line, message):
    with pytest.raises(parse.DissectorError, match=rf"^{re.escape(file)}:{line}: .*({message})"):
        read(text, file)
