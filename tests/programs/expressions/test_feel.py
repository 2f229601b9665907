"""FEEL in processes: what each part of it gives, that mistakes give null, and that budgets hold (B8)."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hark.programs.expressions import ExpressionError
from hark.programs.expressions.feel.functions import FEEL_FUNCTIONS
from hark.programs.expressions.sources import check_source, evaluate

VARIABLES: dict[str, Any] = {
    "n": 3,
    "price": 0.1,
    "name": "Ada",
    "yes": True,
    "nothing": None,
    "list": [3, 1, 2],
    "order": {"total": 120, "items": [{"sku": "a", "price": 10}, {"sku": "b", "price": 25.5}], "my key": 7},
    "table": [{"k": "x", "v": 1}, {"k": "y", "v": 2}, {"k": "z"}],
}

NUMBERS = [
    ("1", 1),
    ("1.50", 1.5),
    (".5", 0.5),
    ("007", 7),
    ("1.2e3", 1200),
    ("-5", -5),
    ("--5", 5),
    ("1 + 2 * 3", 7),
    ("(1 + 2) * 3", 9),
    ("10 - 2 - 3", 5),
    ("7 / 2", 3.5),
    ("6 / 2", 3),
    ("1 / 0", None),
    ("0.1 + 0.2 = 0.3", True),
    ("price + 0.2 = 0.3", True),
    ("price * 3", 0.3),
    ("1 / 3 * 3 = 1", False),
    ("2 ** 3", 8),
    ("2 ** 3 ** 2", 64),
    ("-2 ** 2", 4),
    ("2 ** -1", 0.5),
    ("2 ** 0.5 > 1.4142", True),
    ("0 ** 0", 1),
    ("10 ** 7000", None),
    ("9999999999 * 9999999999", 9999999998 * 10**10 + 1.0),
    ("n + 1", 4),
    ("n + null", None),
    ("n + nothing", None),
    ("n + missing", None),
    ('n + "a"', None),
    ("-null", None),
    ('-"a"', None),
    ("true + 1", None),
    ("[1] + 1", None),
    ("abs(-1.5)", 1.5),
    ('string(abs(duration("-PT5H")))', "PT5H"),
    ("floor(1.5)", 1),
    ("floor(-1.5)", -2),
    ("floor(-1.56, 1)", -1.6),
    ("ceiling(1.5)", 2),
    ("ceiling(-1.5)", -1),
    ("ceiling(-1.56, 1)", -1.5),
    ("decimal(1/3, 2)", 0.33),
    ("decimal(1.5, 0)", 2),
    ("decimal(2.5, 0)", 2),
    ("decimal(0.125, 2)", 0.12),
    ("decimal(1234.5, -2)", 1200),
    ("decimal(1, 7000)", None),
    ("round up(5.5, 0)", 6),
    ("round down(-5.5, 0)", -5),
    ("round half up(-5.5, 0)", -6),
    ("round half down(5.5, 0)", 5),
    ("modulo(12, 5)", 2),
    ("modulo(-12, 5)", 3),
    ("modulo(12, -5)", -3),
    ("modulo(-12, -5)", -2),
    ("modulo(10.1, 4.5)", 1.1),
    ("modulo(-10.1, 4.5)", 3.4),
    ("modulo(1, 0)", None),
    ("even(2)", True),
    ("even(3)", False),
    ("even(-2)", True),
    ("odd(-5)", True),
    ("odd(2)", False),
    ("odd(null)", None),
    ("sqrt(16)", 4),
    ("sqrt(-1)", None),
    ('number("1,234.5", ",", ".")', 1234.5),
    ('number("12")', 12),
    ('number("twelve")', None),
    ("abs([-3])", 3),
    ("abs([1, 2])", None),
    ("abs()", None),
    ("abs(1, 2)", None),
    ('abs("1")', None),
]
COMPARISONS = [
    ("1 = 1.0", True),
    ("1 != 2", True),
    ('"a" = "a"', True),
    ("null = null", True),
    ("null != null", False),
    ("n = null", False),
    ("n != null", True),
    ("nothing = null", True),
    ("missing = null", True),
    ('1 = "1"', None),
    ('1 != "1"', None),
    ("true = 1", None),
    ("[] = 0", None),
    ("[1] = 1", None),
    ("[1, [2]] = [1, [2]]", True),
    ('[1] = ["1"]', False),
    ("[1, 2] = [2, 1]", False),
    ("[1] = [1, 1]", False),
    ("{a: 1, b: {c: []}} = {b: {c: []}, a: 1.0}", True),
    ("{a: 1} = {b: 1}", False),
    ("{} = []", None),
    ("1 < 2", True),
    ('"a" < "b"', True),
    ('"a" >= "b"', False),
    ("1 < null", None),
    ('1 < "2"', None),
    ("true < false", None),
    ("[1] < [2]", None),
    ("price < 0.1", False),
    ("price <= 0.1", True),
    ("1 = 1 and 2 = 2", True),
    ("(1 < 2) = true", True),
    ('date("2026-01-01") < date("2026-01-02")', True),
    ('date("2026-01-01") = date and time("2026-01-01T00:00:00")', None),
    ('date and time("2026-01-01T12:00:00Z") = date and time("2026-01-01T13:00:00+01:00")', True),
    ('date and time("2026-01-01T12:00:00Z") = date and time("2026-01-01T12:00:00")', False),
    ('date and time("2026-01-01T12:00:00Z") < date and time("2026-01-01T12:00:00")', None),
    ('time("10:00:00") < time("10:00:00.5")', True),
    ('duration("P1Y") = duration("P12M")', True),
    ('duration("PT24H") = duration("P1D")', True),
    ('duration("P1Y") = duration("P365D")', None),
    ('duration("P1Y") < duration("P13M")', True),
    ("[1..3] = [1..3]", True),
    ("[1..3] = [1..3)", False),
]
RANGES = [
    ("2 in [1..3]", True),
    ("3 in [1..3)", False),
    ("1 in (1..3]", False),
    ("1 in ]1..3]", False),
    ("3 in [1..3[", False),
    ("3 in [1..3[ and true", False),
    ("list[2] in [1..list[1]]", True),
    ("2 in ]1..3[", True),
    ("0 in [1..3]", False),
    ("null in [1..3]", None),
    ('"b" in ["a".."c"]', True),
    ('"b" in [1..3]', None),
    ("1 in [2, 1]", True),
    ("5 in [[1..3], [4..6]]", True),
    ("9 in [[1..3], [4..6]]", False),
    ("1 in 1", True),
    ("1 in 2", False),
    ("5 in < 10", True),
    ("5 in <= 4", False),
    ("5 in > 4", True),
    ("5 in (1, >= 5)", True),
    ("5 in (1, < 3, [7..9])", False),
    ("5 in (5)", True),
    ("n in (1, n)", True),
    ("5 in (= 5)", True),
    ("9 in (1 + 2) * 3", True),
    ("3 in (list)[1]", True),
    ("true in (n = 3)", True),
    ("true in (n = 3, false)", True),
    ("5 in (!= 5)", False),
    ("[1, 2] in [[1, 2], [3]]", True),
    ("[1, 2] in [1, 2]", True),
    ("null in [1, null]", True),
    ("2 in list", True),
    ("7 in list", False),
    ("2 between 1 and 3", True),
    ("1 between 1 and 3", True),
    ("4 between 1 and 3", False),
    ("null between 1 and 3", None),
    ("2 between null and 3", None),
    ("2 between 1 and null", None),
    ("2 between 1 and 3 and true", True),
    ('duration("P2D") in [duration("P1D") .. duration("P3D")]', True),
    ("[1..3].start", 1),
    ("[1..3).end included", False),
]
LOGIC = [
    ("true and true", True),
    ("true and false", False),
    ("true and null", None),
    ("null and false", False),
    ("null and null", None),
    ("true or null", True),
    ("false or null", None),
    ("false or false", False),
    ("missing or yes", True),
    ('true and "a"', None),
    ('false and "a"', False),
    ("true or 1", True),
    ("0 or false", None),
    ("not(true)", False),
    ("not(false)", True),
    ("not(null)", None),
    ("not(1)", None),
    ("not()", None),
    ("yes and n > 2 or false", True),
    ("false or true and false", False),
    ("null + 1 = null", True),
    ("null.a.b", None),
    ("null[1]", None),
    ('if n > 2 then "big" else "small"', "big"),
    ("if null then 1 else 2", 2),
    ('if "a" then 1 else 2', 2),
    ("if missing > 3 then 1 else if yes then 2 else 3", 2),
    ("(if yes then 1 else 2) + 1", 2),
    ("if yes then 1 else 2 + 1", 1),
    ("all([true, true])", True),
    ("all([true, null])", None),
    ("any([false, null, true])", True),
    ("any([])", False),
    ("all(true, 1)", None),
]
LISTS = [
    ("[]", []),
    ("[1, 2][1]", 1),
    ("[1, 2][2]", 2),
    ("[1, 2][-1]", 2),
    ("[1, 2][0]", None),
    ("[1, 2][3]", None),
    ("[1, 2][-3]", None),
    ("[][1]", None),
    ("list[n - 1]", 1),
    ("list[item > 1]", [3, 2]),
    ("list[item > 9]", []),
    ("[][item > 9]", []),
    ("list[true]", [3, 1, 2]),
    ("list[false]", []),
    ("list[null]", []),
    ("7[1]", 7),
    ("7[2]", None),
    ("7[item > 3]", [7]),
    ('"a"[false]', []),
    ("table[v > 1].k", ["y"]),
    ("table[v = null].k", ["z"]),
    ('table[k = "x"][1].v', 1),
    ("table.v", [1, 2, None]),
    ("[{item: 1}, {item: 2}][item > 1]", [{"item": 2}]),
    ("[{n: 9}][n = 9]", [{"n": 9}]),
    ("order.items[price > 20].sku", ["b"]),
    ("order.items[item.price > n * 5]", [{"sku": "b", "price": 25.5}]),
    ("count(list)", 3),
    ("count([])", 0),
    ("count(7)", 1),
    ("count(null)", None),
    ("min(3, 1, 2)", 1),
    ("min(list)", 1),
    ("max(list)", 3),
    ('max("a", "c", "b")', "c"),
    ('string(max(date("2026-01-01"), date("2026-01-02")))', "2026-01-02"),
    ("min([])", None),
    ("min()", None),
    ('min(1, "a")', None),
    ("min(1, null)", None),
    ("max([null])", None),
    ("min(5)", 5),
    ("sum(1, 2, 3)", 6),
    ("sum([0.1, 0.2]) = 0.3", True),
    ("sum([])", None),
    ("sum([1, null])", None),
    ('sum([1, "a"])', None),
    ("sum(5)", 5),
    ('string(sum([duration("P1D"), duration("PT12H")]))', "P1DT12H"),
    ("mean(1, 2, 3, 4)", 2.5),
    ("mean([])", None),
    ("median(8, 2, 5, 3, 4)", 4),
    ("median([6, 1, 2, 3])", 2.5),
    ("product([2, 3, 4])", 24),
    ("stddev(2, 4, 7, 5)", 2.081665999),
    ("sublist([4, 5, 6], 1, 2)", [4, 5]),
    ("sublist([4, 5, 6], 2)", [5, 6]),
    ("sublist([4, 5, 6], -2)", [5, 6]),
    ("sublist([4, 5, 6], -3, 1)", [4]),
    ("sublist([4, 5, 6], 0)", None),
    ("sublist([4, 5, 6], 4)", None),
    ("sublist([4, 5, 6], 2, 3)", None),
    ("sublist(null, 1)", None),
    ("append([1], 2, 3)", [1, 2, 3]),
    ("append([1], [2])", [1, [2]]),
    ("append([1], null)", [1, None]),
    ("append(1, 2)", [1, 2]),
    ("append(null, 2)", None),
    ("concatenate([1], [2, 3], 4)", [1, 2, 3, 4]),
    ("concatenate([1], null)", None),
    ("insert before([1, 3], 2, 2)", [1, 2, 3]),
    ("insert before([1, 3], -1, 2)", [1, 2, 3]),
    ("insert before([1, 3], 0, 2)", None),
    ("insert before([1, 3], 4, 2)", None),
    ("insert before([1, 3], 1, null)", [None, 1, 3]),
    ("remove([1, 2, 3], 2)", [1, 3]),
    ("reverse([1, 2])", [2, 1]),
    ("index of([1, 2, 1], 1)", [1, 3]),
    ("index of([1, null], null)", [2]),
    ("union([1, 2], [2, 3])", [1, 2, 3]),
    ("distinct values([1, 2, 1.0])", [1, 2]),
    ("flatten([1, [2, [[3]]], []])", [1, 2, 3]),
    ("list contains([1, 2], 2)", True),
    ('list contains([1, 2], "2")', False),
    ("list contains([1, null], null)", True),
    ("list contains(null, 1)", None),
    ("list contains([[1]], [1])", True),
    ("is empty([])", True),
    ("for i in [1, 2] return i * 2", [2, 4]),
    ("for i in 1..3 return i", [1, 2, 3]),
    ("for i in 3..1 return i", [3, 2, 1]),
    ("for i in [1, 2], j in [10, i] return i + j", [11, 2, 12, 4]),
    ("some i in list satisfies i > 2", True),
    ("some i in list satisfies i > 9", False),
    ("every i in list satisfies i > 0", True),
    ("every i in list satisfies i > 1", False),
    ("some i in [] satisfies true", False),
    ("every i in [] satisfies false", True),
    ("some i in [1, null] satisfies i > 9", None),
    ("every i in [1, null] satisfies i > 0", None),
    ("every i in [0, null] satisfies i > 0", False),
    ("some i in null satisfies true", None),
    ("some i in 7 satisfies i = 7", True),
    ("some i in [1, 2], j in [2, 3] satisfies i = j", True),
    ("every i in table satisfies i.v > 0", None),
]
CONTEXTS = [
    ("{}", {}),
    ('{a: 1, "b c": 2, d e: 3}', {"a": 1, "b c": 2, "d e": 3}),
    ("{a: 1, b: a + 1, c: {d: a + b}}", {"a": 1, "b": 2, "c": {"d": 3}}),
    ("{n: n + 1, m: n}", {"n": 4, "m": 4}),
    ("{a: 1}.a", 1),
    ("{a: 1}.b", None),
    ("{a: 1, a: 2}", None),
    ("{a-b: 1}", {"a-b": 1}),
    ("{🐎: 1, b: 🐎 + 1}", {"🐎": 1, "b": 2}),
    ("{größe: 1}.größe", 1),
    ("order.total", 120),
    ("order.`my key`", 7),
    ("order.total.deeper", None),
    ('get value(order, "total")', 120),
    ('get value(order, "my key")', 7),
    ('get value({a: 1}, "b")', None),
    ('get value(null, "a")', None),
    ("get value({a: 1}, null)", None),
    ("get entries({a: 1, b: 2})", [{"key": "a", "value": 1}, {"key": "b", "value": 2}]),
    ('get entries({a: 1})[key = "a"].value', [1]),
    ("get entries(null)", None),
    ("get entries([])", None),
    ('context put({a: 1}, "b", 2)', {"a": 1, "b": 2}),
    ("context merge([{a: 1}, {a: 2, b: 3}])", {"a": 2, "b": 3}),
    ('context([{key: "a", value: 1}])', {"a": 1}),
]
TEXTS = [
    ('"a" + "b"', "ab"),
    ('"a" + 1', None),
    ('"a" + null', None),
    (r'"q\"\\\n\t\u00e9\ud83d\ude00\U01F600"', 'q"\\\n\té😀😀'),
    ('"it\'s"', "it's"),
    ('substring("foobar", 3)', "obar"),
    ('substring("foobar", 3, 3)', "oba"),
    ('substring("foobar", -2, 1)', "a"),
    ('substring("foobar", -6)', "foobar"),
    ('substring("foobar", 3, 3.8)', "oba"),
    ('substring("foobar", 0)', None),
    ('substring("foobar", 1, 0)', None),
    ('substring("\\U01F40Eab", 2)', "ab"),
    ("substring(null, 1)", None),
    ('string length("")', 0),
    ('string length("\\U01F40Eab")', 3),
    ("string length(1)", None),
    ('upper case("aBc4ß")', "ABC4SS"),
    ('lower case("ABC4")', "abc4"),
    ('substring before("foobar", "bar")', "foo"),
    ('substring before("foobar", "x")', ""),
    ('substring before("foobar", "")', ""),
    ('substring after("foobar", "ob")', "ar"),
    ('substring after("foobar", "x")', ""),
    ('substring after("foobar", "")', "foobar"),
    ('substring after("", "a")', ""),
    ('contains("foobar", "ob")', True),
    ('contains("foobar", "of")', False),
    ('contains("foobar", null)', None),
    ('starts with("foobar", "fo")', True),
    ('ends with("foobar", "ar")', True),
    ('ends with("foobar", 1)', None),
    ('split("a;b;c;;", ";")', ["a", "b", "c", "", ""]),
    ('split("John Doe", "\\s")', ["John", "Doe"]),
    ('split("a.b", "\\.")', ["a", "b"]),
    ('split("", ",")', [""]),
    ('split(null, ",")', None),
    ('string join(["a", "b"])', "ab"),
    ('string join(["a", "b"], ", ")', "a, b"),
    ('string join(["a", null, "b"], "-")', "a-b"),
    ('string join(["a", "b"], null)', "ab"),
    ('string join("a", "-")', "a"),
    ('string join([], "-")', ""),
    ("string join([1])", None),
    ("string join(null)", None),
    ('string join(["a"], 1)', None),
    ('string("a")', "a"),
    ("string(1.10)", "1.1"),
    ("string(100)", "100"),
    ("string(1e3)", "1000"),
    ("string(-0.0)", "0"),
    ("string(true)", "true"),
    ("string(null)", None),
    ('string([1, "a", [true, null]])', '[1, "a", [true, null]]'),
    ('string({a: "x", b: {c: 1}})', '{a: "x", b: {c: 1}}'),
    ('"n is " + string(n)', "n is 3"),
    ('upper case(name) + "!"', "ADA!"),
    ("is defined(missing)", False),
    ('get or else(missing, "x")', "x"),
]
DATES = [
    ('date("2026-02-28")', "2026-02-28"),
    ('date("2026-02-29")', None),
    ('date("2024-02-29").day', 29),
    ('date("26-02-28")', None),
    ('date("2026-2-8")', None),
    ('date("+2026-02-28")', None),
    ('date("02026-02-28")', None),
    ('date("0999-02-28")', "0999-02-28"),
    ('date("-2026-02-28").year', -2026),
    ('date("999999999-12-31")', "999999999-12-31"),
    ("date(2026, 2, 28)", "2026-02-28"),
    ("date(2026, 13, 1)", None),
    ("date(2026, 1)", None),
    ('date("2026", 1, 1)', None),
    ('date(date and time("2026-01-31T10:00:00"))', "2026-01-31"),
    ('date(date("2026-01-31"))', "2026-01-31"),
    ('date("")', None),
    ("date(null)", None),
    ("date()", None),
    ('date("2026-01-31T10:00:00")', None),
    ('date("2026-11-16").weekday', 1),
    ('date("2026-11-15").weekday', 7),
    ('date("2026-11-16").hour', None),
    ('date("2026-11-16").month + 1', 12),
    ('time("10:30:00")', "10:30:00"),
    ('time("10:30:00.100")', "10:30:00.1"),
    ('time("24:00:00")', None),
    ('time("10:60:00")', None),
    ('time("10:30")', None),
    ('time("10:30:00Z")', "10:30:00Z"),
    ('time("10:30:00+00:00")', "10:30:00Z"),
    ('time("10:30:00-05:30")', "10:30:00-05:30"),
    ('time("10:30:00@Europe/Paris")', "10:30:00@Europe/Paris"),
    ('time("10:30:00@Nowhere/Town")', None),
    ("time(10, 30, 1)", "10:30:01"),
    ("time(10, 30, 1.5)", "10:30:01.5"),
    ('time(10, 30, 1, duration("PT1H"))', "10:30:01+01:00"),
    ("time(10, 30, 1, null)", "10:30:01"),
    ("time(25, 0, 0)", None),
    ('time(date and time("2026-01-31T10:00:00"))', "10:00:00"),
    ('time("10:30:15").minute', 30),
    ('time("10:30:15+02:00").time offset', "PT2H"),
    ('time("10:30:15").time offset', None),
    ('date and time("2026-01-31T10:00:00")', "2026-01-31T10:00:00"),
    ('date and time("2026-01-31")', "2026-01-31T00:00:00"),
    ('date and time("2026-01-31T25:00:00")', None),
    ('date and time("2026-01-31T10:00:00.123456789Z")', "2026-01-31T10:00:00.123456789Z"),
    ('date and time(date("2026-01-31"), time("10:00:00"))', "2026-01-31T10:00:00"),
    ('date and time(date and time("2026-01-31T09:00:00"), time("10:00:00"))', "2026-01-31T10:00:00"),
    ('date and time(date("2026-01-31"), null)', "2026-01-31T00:00:00"),
    ('date and time("2026-01-31T10:00:00@Europe/Paris").timezone', "Europe/Paris"),
    ('date and time("2026-01-31T10:20:30").second', 30),
    ('date and time("2026-01-31T10:20:30").weekday', 6),
    ('duration("P1DT2H3M4.5S")', "P1DT2H3M4.5S"),
    ('duration("PT36H")', "P1DT12H"),
    ('duration("P26M")', "P2Y2M"),
    ('duration("-P1Y")', "-P1Y"),
    ('duration("PT0S")', "PT0S"),
    ('duration("P0Y")', "P0M"),
    ('duration("P1Y1D")', None),
    ('duration("P")', None),
    ('duration("PT")', None),
    ('duration("P1DT")', None),
    ('duration("1D")', None),
    ("duration(5)", None),
    ('duration("P1Y2M").months', 2),
    ('duration("P1Y2M").days', None),
    ('duration("P1DT2H").hours', 2),
    ('duration("-P1DT2H").days', -1),
    ('years and months duration(date("2011-12-22"), date("2013-08-24"))', "P1Y8M"),
    ('years and months duration(date("2013-08-24"), date("2011-12-22"))', "-P1Y8M"),
    ('years and months duration(date("2015-01-31"), date("2015-02-28"))', "P0M"),
    ('years and months duration(date("2015-01-31"), date("2016-01-31"))', "P1Y"),
    ('years and months duration(date("2015-01-31"), null)', None),
    ('date("2026-01-31") + duration("P1M")', "2026-02-28"),
    ('date("2026-01-31") + duration("P1D")', "2026-02-01"),
    ('date("2026-01-31") + duration("PT36H")', "2026-02-01"),
    ('date("2026-01-31") - duration("PT1H")', "2026-01-30"),
    ('duration("P1M") + date("2026-01-31")', "2026-02-28"),
    ('date("2026-02-01") - date("2026-01-31")', "P1D"),
    ('date and time("2026-01-01T00:00:00") + duration("PT90M")', "2026-01-01T01:30:00"),
    ('date and time("2026-01-01T00:00:00") - date and time("2025-12-31T12:00:00")', "PT12H"),
    ('date and time("2026-01-01T00:00:00Z") - date and time("2026-01-01T00:00:00")', None),
    ('date and time("2026-01-01T10:00:00Z") - date("2026-01-01")', "PT10H"),
    ('date and time("2026-03-28T12:00:00@Europe/Berlin") + duration("PT24H")', "2026-03-29T13:00:00@Europe/Berlin"),
    ('time("23:00:00") + duration("PT2H")', "01:00:00"),
    ('time("10:00:00") - time("08:30:00")', "PT1H30M"),
    ('time("10:00:00") + time("08:30:00")', None),
    ('date("2026-01-01") + 1', None),
    ('date("2026-01-01") + date("2026-01-01")', None),
    ('duration("P1D") + duration("PT1H")', "P1DT1H"),
    ('duration("P1Y") + duration("P1D")', None),
    ('duration("P1D") * 1.5', "P1DT12H"),
    ('2 * duration("P5M")', "P10M"),
    ('duration("P1Y11M") * -2.5', "-P4Y9M"),
    ('duration("P1D") / 2', "PT12H"),
    ('duration("P1D") / duration("PT6H")', 4),
    ('duration("P1D") / 0', None),
    ('-duration("P1D")', "-P1D"),
    ('@"2026-01-31".month', 1),
    ('@"PT1H" + @"PT30M"', "PT1H30M"),
    ('day of week(date("2026-11-16"))', "Monday"),
    ('month of year(date("2026-11-16"))', "November"),
    ('day of year(date("2026-02-01"))', 32),
    ('week of year(date("2026-01-01"))', 1),
    ('week of year(date("2027-01-01"))', 53),
    ("now()", "2026-11-16T12:00:00Z"),
    ("today()", "2026-11-16"),
    ('now() + duration("PT1H")', "2026-11-16T13:00:00Z"),
    ('string([date("2026-01-31"), duration("P1D")])', "[2026-01-31, P1D]"),
    ('[date("2026-01-31"), 1.5]', ["2026-01-31", 1.5]),
    ('{due: {on: date("2026-01-31")}}', {"due": {"on": "2026-01-31"}}),
]
NOW = 1_794_830_400_000_000  # 2026-11-16T12:00:00Z


@pytest.mark.parametrize(
    ("expression", "expected"), [*NUMBERS, *COMPARISONS, *RANGES, *LOGIC, *LISTS, *CONTEXTS, *TEXTS, *DATES]
)
def test_b8_the_value_in_feel_of(expression: str, expected: Any) -> None:
    value = evaluate(f"={expression}", VARIABLES, NOW)
    if type(expected) is float:
        assert value == pytest.approx(expected, rel=1e-9)
    else:
        assert (value, type(value)) == (expected, type(expected))


@pytest.mark.parametrize(
    "expression",
    [
        "", "1 +", "(1", "[1", "{a 1}", "{: 1}", "1 2", "my total + 1", "'a'", '"a', "if 1 then 2", "some x in y",
        "every x of y satisfies 1", "function(x) x", "x instance of number", "fo(1)", "lenght(1)", "`a",
        'substring(string: "a", start position: 1)', '@"tomorrow"', "a.", "a..b", "1 = = 2", "2x", "a ? b : c",
        "[1..]", "x between 1", "#", "for i in", '"\\ud800"', '"\\u0000"', "1" * 61, "1e999",
    ],
)  # fmt: skip
def test_b8_what_is_not_feel_is_refused_with_its_position(expression: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        check_source(f"={expression}")
    assert 0 <= caught.value.position <= len(expression) + 1


def test_b8_an_unknown_function_is_refused_with_the_nearest() -> None:
    with pytest.raises(ExpressionError, match="did you mean 'string length'"):
        check_source('=string lenght("a")')


def test_b8_the_page_on_expressions_lists_every_function() -> None:
    page = (Path(__file__).parents[3] / "docs/expressions.md").read_text()
    table = page.partition("| functions of FEEL |")[2].partition("\n\n")[0]
    assert sorted(re.findall(r"`([^`]+)`", table)) == sorted(FEEL_FUNCTIONS)


def test_b8_comments_and_spaces_do_not_count() -> None:
    assert evaluate(" = 1 // one\n + /* two */ 2\n", {}) == 3
    assert evaluate('=date  and\ttime ("2026-01-31").day', {}) == 31


def test_b8_variables_are_any_mapping_and_values_are_not_copied() -> None:
    variables = MappingProxyType(VARIABLES)
    assert evaluate("=order", variables) is VARIABLES["order"]
    assert evaluate("=[order, list]", variables)[0] is VARIABLES["order"]
    assert evaluate("=(order)", variables) is VARIABLES["order"]


def test_b8_a_variable_that_is_not_json_is_an_error() -> None:
    with pytest.raises(ExpressionError):
        evaluate("=x + 1 = x", {"x": object()})


def test_b8_the_time_is_an_error_where_it_is_not_known() -> None:
    with pytest.raises(ExpressionError, match="time"):
        evaluate("=now()", {})


BIG = {"big": list(range(20_000)), "text": "x" * 450_000}


@pytest.mark.parametrize(
    "expression",
    [
        "some a in big, b in big satisfies a < 0",
        "for a in 1..1000000000 return a",
        "count(concatenate(big, big, big, big, big, big))",
        "count(union(big, big))",
        'split(text, "x")',
        "+".join(["text"] * 40),
        "string(" + "[" * 40 + "text" + "]" * 40 + ")",
        "big[item in big]",
        "+".join(["count(big[item >= 0])"] * 9),
    ],
)
def test_b8_the_budget_ends_every_evaluation(expression: str) -> None:
    with pytest.raises(ExpressionError, match="too m"):
        evaluate(f"={expression}", BIG)


@pytest.mark.parametrize(
    "expression",
    [
        "(" * 60 + "1" + ")" * 60, "[" * 60 + "]" * 60, "-" * 60 + "1", "1" + "+ (1" * 60 + ")" * 60,
        "if true then " * 60 + "1" + " else 1" * 60, "a" + ".a" * 60, "a" + "[1]" * 60, "x in " * 60 + "x",
        "1," * 10_001, "x" * 70_000, "not(" * 60 + "true" + ")" * 60, "{a:" * 60 + "1" + "}" * 60,
    ],
)  # fmt: skip
def test_b8_what_is_too_deep_or_too_long_is_refused(expression: str) -> None:
    with pytest.raises(ExpressionError):
        check_source(f"={expression}")


def test_b8_a_long_sum_is_not_deep() -> None:
    assert evaluate("=" + "+".join(["1"] * 4000), {}) == 4000


def test_b8_numbers_without_bounds_are_null_or_an_error() -> None:
    assert evaluate("=99999999 ** 99999999", {}) is None
    assert evaluate("=decimal(1e300, 6000)", {}) is None
    assert evaluate("=1 / 3 ** 6000", {}) == 0
    with pytest.raises(ExpressionError, match="too large"):
        evaluate("=exp(9999)", {})


_WORDS = [
    *FEEL_FUNCTIONS, "if", "then", "else", "some", "every", "in", "satisfies", "for", "return", "and", "or", "between",
    "null", "true", "item", "list", "order", "n", "1", "0.5", '"a"', "(", ")", "[", "]", "{", "}", "..", ".", ",", ":",
    "=", "<", "+", "-", "*", "**", "/", "@", 'date("2026-01-31")', 'duration("P1D")', "not", "`x`",
]  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(_WORDS), max_size=25))
def test_b8_no_text_does_anything_but_give_a_value_or_an_expression_error(words: list[str]) -> None:
    with suppress(ExpressionError):
        evaluate("=" + " ".join(words), VARIABLES, NOW)


_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(FEEL_FUNCTIONS)), st.lists(_values, max_size=4))
def test_b8_every_function_takes_every_value(name: str, values: list[Any]) -> None:
    variables = {f"v{number}": value for number, value in enumerate(values)}
    with suppress(ExpressionError):
        evaluate(f"={name}({', '.join(variables)})", variables, NOW)
