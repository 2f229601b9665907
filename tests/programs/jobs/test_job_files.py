"""Job files: what is read, and what is refused, with the line and the reason (J1)."""

from pathlib import Path
from typing import Any

import pytest

from hark import InvalidDefinition, Problem, load_job
from hark.programs.jobs.job_spec import JobSpec, RetrySpec, ScheduleSpec, decode_job

RELEASE = """\
name: release
inputs: {service: api}
defaults: {retry: {limit: 3, delay: 1, scaling: 2}, timeout_sec: 600}
tasks:
  - name: build
    run: make build SERVICE={{ inputs.service }}
    var: image
  - name: verify
    needs: [build]
    if: "{{ inputs.service != 'docs' }}"
    handler: verify-image
    gate: user_approval
    on_fail: {regress_to: build, limit: 3}
"""


def problems(source: Any) -> list[Problem]:
    with pytest.raises(InvalidDefinition) as caught:
        load_job(source)
    found = caught.value.problems
    assert found
    assert all(str(problem.message).endswith((".", "?")) for problem in found)
    assert all(str(problem) in str(caught.value) for problem in found[:20])
    return found


def only(source: Any) -> Problem:
    [problem] = problems(source)
    return problem


def job(*lines: str, before: str = "") -> str:
    """A file with one task `a`, and these lines in it, the first of which is line 5."""
    return "\n".join(["name: j", before, "tasks:", "  - name: a", *(f"    {line}" for line in lines)]) + "\n"


def two(first: str, second: str) -> str:
    return f"name: j\ntasks:\n  - {first}\n  - {second}\n"


def test_j1_the_file_of_the_manual_is_read() -> None:
    spec = load_job(RELEASE).spec
    build, verify = spec.tasks
    assert (spec.name, spec.inputs) == ("release", {"service": "api"})
    assert (build.run, build.var, build.timeout_sec) == ("make build SERVICE={{ inputs.service }}", "image", 600)
    assert build.retry == verify.retry == RetrySpec(limit=3, delay=1, scaling=2)
    assert (verify.needs, verify.condition) == (("build",), "{{ inputs.service != 'docs' }}")
    assert (verify.handler, verify.gate) == ("verify-image", "user_approval")
    assert verify.on_fail is not None
    assert (verify.on_fail.regress_to, verify.on_fail.limit) == ("build", 3)


def test_j1_a_path_a_text_and_a_dict_give_the_same_job(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(job("run: make"), "utf-8")
    as_dict = {"name": "j", "tasks": [{"name": "a", "run": "make"}]}
    as_json = '{"name": "j",\n "tasks": [{"name": "a", "run": "make"}]}'
    digests = {load_job(source).digest for source in (path, str(path), path.read_text(), as_dict, as_json)}
    assert len(digests) == 1
    assert load_job({**as_dict, "priority": 1}).digest not in digests


def test_a_stored_source_gives_the_same_spec() -> None:
    found = load_job(RELEASE)
    assert decode_job(found.source) == found.spec
    assert isinstance(found.spec, JobSpec)


def test_a_retry_of_a_task_completes_itself_from_the_defaults() -> None:
    spec = load_job(job("run: x", "retry: {limit: 5}", before="defaults: {retry: {delay: 9}}")).spec
    assert spec.tasks[0].retry == RetrySpec(limit=5, delay=9, scaling=2)
    assert load_job(job("run: x")).spec.tasks[0].retry.limit == 1
    assert load_job(job("run: x", "retry: {}")).spec.tasks[0].retry == RetrySpec(limit=3, delay=1, scaling=2)


def test_defaults_reach_only_the_types_that_can_have_them() -> None:
    spec = load_job(job("type: sleep", "seconds: 1", before="defaults: {timeout_sec: 5, queue: q}")).spec
    assert (spec.tasks[0].timeout_sec, spec.tasks[0].queue) == (None, None)


def test_a_missing_file_is_an_error_of_the_system() -> None:
    with pytest.raises(FileNotFoundError):
        load_job("nowhere.yaml")


@pytest.mark.parametrize(
    ("lines", "field", "value"),
    [
        (["run: on"], "run", "on"),
        (["run: no"], "run", "no"),
        (["run: Yes"], "run", "Yes"),
        (["run: 2024-01-01"], "run", "2024-01-01"),
        (["run: 1:30:00"], "run", "1:30:00"),
        (["run: 012"], "run", "012"),
        (["run: 1_000"], "run", "1_000"),
        (["run: x", "input: {a: [on, no, 012, 0x10, 0o17, 1e3, 1.5, -3, ~, true, '1']}"],
         "input", {"a": ["on", "no", "012", 16, 15, 1000.0, 1.5, -3, None, True, "1"]}),
        (["run: x", "input: {on: 1, no: 2, 3: 4}"], "input", {"on": 1, "no": 2, "3": 4}),
        (["run: x", "if: false"], "condition", "false"),
        (["run: x", "rate_limit: [stripe, '{{ inputs.who }}']"], "rate_limit", ("stripe", "{{ inputs.who }}")),
        (["agent: opencode", "run: x"], "agent", None),
        (["type: map", "over: [1, 2]", "as: file", "handler: h"], "as_", "file"),
        (["type: wait_for_event", "event: e", "timeout: 3"], "timeout", 3.0),
        (["type: sleep", "seconds: '{{ inputs.pause }}'"], "seconds", "{{ inputs.pause }}"),
    ],
)  # fmt: skip
def test_values_are_read_by_the_rules_of_yaml_1_2(lines: list[str], field: str, value: Any) -> None:
    found = getattr(load_job(job(*lines)).spec.tasks[0], field)
    assert found.type == "opencode" if field == "agent" else found == value


def test_a_schedule_is_a_cron_expression_or_a_mapping() -> None:
    assert load_job(job("run: x", before='schedule: "0 9 * * MON"')).spec.schedule == ScheduleSpec(cron="0 9 * * MON")
    given = "schedule: {every: 60, overlap: queue, input: {a: 1}}"
    assert load_job(job("run: x", before=given)).spec.schedule == ScheduleSpec(
        every=60, overlap="queue", input={"a": 1}
    )


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", None, "empty"),
        ("# nothing\n", None, "empty"),
        ("name: [", 2, "not valid YAML"),
        ("name: j\n\ttasks: 3\n", 2, "not valid YAML"),
        ("name: &a j\ntasks: []\n", 1, "Anchors"),
        ("name: j\ntasks: *a\n", 2, "Aliases"),
        ("name: !!python/object:os.system j\ntasks: []\n", 1, "tag"),
        ("<<: {a: 1}\nname: j\n", 1, "Merge keys"),
        ("? [a]\n: b\n", 1, "A key must be text"),
        ("name: j\n---\nname: k\n", 2, "second document"),
        ("name: .inf\nx: 1\n", 1, "not a number that JSON has"),
        ("name: 1\nx: " + "9" * 40 + "\n", 2, "digits"),
        ("name: 1e999\nx: 1\n", 1, "too large"),
        ("a: " + "[" * 60 + "]" * 60 + "\n", 1, "nests deeper"),
        ('{"a": ' + "[" * 60 + "]" * 60 + "}", 1, "nests deeper"),
        ('{"a":\n 1,\n}', 3, "not valid JSON"),
        ("a: \0\n", 1, "U+0000"),
        ("a: 1\nb: \x1b\n", 2, "U+001B"),
        ('a: 1\nb: "\\0"\n', 2, "NUL"),
        ('a: 1\n"\\0": b\n', 2, "NUL"),
        ("a: 1\nb: {{ inputs.x }}\n", 2, "put it in quotes"),
        ("- a\n- b\n", 1, "The job must be a mapping"),
    ],
)  # fmt: skip
def test_j1_a_text_that_is_not_a_job_is_refused_with_its_line(text: str, line: int | None, words: str) -> None:
    problem = only(text if "\n" in text or text.startswith("{") else text + "\n")
    assert (problem.element, problem.line) == (None, line)
    assert words in problem.message


def test_a_binary_or_huge_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_bytes(b"name: j\n\xff\xfe\x00")
    assert (only(path).line, "not UTF-8" in only(path).message) == (2, True)
    path.write_bytes(b"\x7fELF\x02\x01\x01\x00")
    assert "not a text file" in only(path).message
    path.write_bytes(b"# " + b"x" * (1 << 20))
    assert "bytes" in only(path).message


@pytest.mark.parametrize(
    ("text", "element", "line", "words"),
    [
        (job("runn: x"), "a", 5, "has no key 'runn'. Did you mean 'run'?"),
        (job("depends_on: [b]", "run: x"), "a", 5, "Did you mean 'needs'?"),
        (job("run: x", "timeout: 5"), "a", 6, "timeout_sec"),
        (job("run: x", "run: y"), "a", 6, "occurs twice"),
        (job("run: x", "input: {a: 1, a: 2}"), "a", 6, "'a' occurs twice"),
        (job("run: x", "needs: [b]"), "a", 6, "'b', which is not a task"),
        (job("run: x", "needs: [a]"), "a", 6, "cycle: a needs a"),
        (job("run: 12"), "a", 5, "must be a text"),
        (job("run: ''"), "a", 5, "empty"),
        (job("handler: h", "run: x"), "a", 6, "not both"),
        (job("agent: {type: o}"), "a", 4, "prompt"),
        (job("agent: {model: o}", "run: x"), "a", 5, "needs the key 'type'"),
        (job(), "a", 4, "does nothing"),
        (job("type: tsk", "run: x"), "a", 5, "Did you mean 'task'?"),
        (job("type: loop", "run: x", "handler: h"), "a", 6, "only a handler"),
        (job("type: loop"), "a", 4, "needs the key 'handler'"),
        (job("type: sleep"), "a", 4, "needs the key 'seconds'"),
        (job("type: sleep", "seconds: soon"), "a", 6, "number of seconds"),
        (job("type: sleep", "seconds: 1", "run: x"), "a", 7, "run belongs to type task or map"),
        (job("type: approval"), "a", 4, "title"),
        (job("type: approval", "title: ok?", "schema: {type: nonsense}"), "a", 7, "schema"),
        (job("type: map", "handler: h", "over: 3"), "a", 7, "must be a list"),
        (job("type: workflow", "definition: '{{ inputs.x }}'"), "a", 6, "cannot be a template"),
        (job("run: x", "max_iterations: 3"), "a", 6, "belongs to type loop"),
        (job("run: x", "concurrency_key: 'k{{ iteration }}'"), "a", 6, "there is no variable 'iteration' here"),
        (job("run: x", "retry: {limit: 0}"), "a", 6, "whole number from 1"),
        (job("run: x", "retry: {scaling: 0.5}"), "a", 6, "number from 1"),
        (job("run: x", "retry: 3"), "a", 6, "retry must be a mapping"),
        (job("run: x", "timeout_sec: -1"), "a", 6, "negative"),
        (job("run: x", "when: sometimes"), "a", 6, "one of all_success, all_done, one_failed"),
        (job("run: x", "when: one_failed"), "a", 6, "it has none"),
        (job("run: x", "on_fail: {regress_to: b}"), "a", 6, "which is not a task"),
        (job("run: x", "heartbeat_sec: 3"), "a", 6, "for handlers"),
        (job("run: x", "needs: [b, b]"), "a", 6, "'b' twice"),
        (job("run: x", before="fail_fast: yes"), None, 2, "Write true"),
        (job("run: x", before="inputs: [a]"), None, 2, "mapping of names and defaults"),
        (job("run: x", before="defaults: {retyr: {}}"), None, 2, "Did you mean 'retry'?"),
        (job("run: x", before="schedule: {timezone: Mars/Base, every: 3}"), None, 2, "no time zone"),
        (job("run: x", before="schedule: {timezone: UTC}"), None, 2, "either `cron` or `every`"),
        (job("run: x", before="schedule: {every: 60, catch_up: 1001}"), None, 2, "0 to 1000"),
        (job("run: x", before="schedule: {every: 60, timezone: localtime}"), None, 2, "no time zone"),
        (job("run: x", before="steps: []"), None, 2, "Did you mean 'tasks'?"),
        ("name: j\ntasks: []\n", None, 2, "at least one task"),
        ("name: j\ntasks: {a: b}\n", None, 2, "list of tasks"),
        ("name: j\n", None, 1, "needs the key 'tasks'"),
        ("tasks: [{name: a, run: x}]\n", None, 1, "needs the key 'name'"),
        ("name: j\ntasks:\n  - run: x\n", "tasks[0]", 3, "needs the key 'name'"),
        ("name: j\ntasks:\n  - build\n", "tasks[0]", 3, "must be a mapping"),
        (job("run: x", "undo: y", "agent: o"), "a", 6, "cannot have an undo"),
        (job("handler: h", "undo: rm {{ output }}"), "a", 6, "undo cannot be a template"),
        (job("handler: h", "undo: shell"), "a", 6, "cannot be called 'shell'"),
        (job("type: map", "handler: h", "over: [{b: 1, b: 2}]"), "a", 7, "'b' occurs twice in over"),
        (job("run: x", before="inputs: {b: 1}\nschedule: {every: 60, input: {c: 1}}"), None, 3, "no input 'c'"),
        (two("{name: a, run: x}", "{name: a, run: y}"), "a", 4, "two tasks named 'a'. The first one is in line 3"),
        (two("{name: a, run: x, needs: b}", "{name: b, run: y, needs: [a]}"), "a", 3, "a needs b needs a"),
        (two("{name: build, run: x}", "{name: b, run: y, needs: [biuld]}"), "b", 4, "Did you mean 'build'?"),
        (two("{name: a, run: x}", "{name: b, run: y, var: a}"), "b", 4, "result has the name 'a'"),
        (two("{name: a, run: x}", "{name: b, run: y, on_fail: {regress_to: a}}"), "b", 4, "does not come before"),
    ],
)  # fmt: skip
def test_j1_a_mistake_is_refused_with_its_line_and_the_reason(
    text: str, element: str | None, line: int, words: str
) -> None:
    problem = only(text)
    assert (problem.element, problem.line) == (element, line)
    assert words in problem.message


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (job("run: echo {{ inputs.x"), 5, "run: '}}' is missing"),
        (job("run: x", "if: '{{ inputs.x ='"), 6, "if: "),
        (job("run: |", "  echo", "  echo {{ 1 + }}"), 7, "run: "),
        (job("run: |", "  echo", "  echo {{ tasks.b.output }}"), 7, "there is no task 'b'"),
        (job("run: x", "if: inputs.y == 1", before="inputs: {yy: 1}"), 6, "no input 'y'. Did you mean 'yy'?"),
        (job("run: echo {{ tasks.b.output }}"), 5, "there is no task 'b'"),
        (job("run: echo {{ tasks.a.output }}"), 5, "cannot refer to itself"),
        (job("run: echo {{ tasks }}"), 5, "must be followed by the name"),
        (job("run: echo {{ input.x }}"), 5, "no variable 'input' here. Did you mean 'inputs'?"),
        (job("run: echo {{ output }}"), 5, "no variable 'output' here"),
        (job("run: echo {{ event.x }}"), 5, "no variable 'event' here"),
        (job("run: x", "gate: '{{ event.x }}'"), 6, "gate: there is no variable 'event'"),
        (job("run: x", "gate: 'a:b'"), 6, "contains '@', ':'"),
        (job("handler: shell"), 5, "cannot be called 'shell'"),
        (job("handler: h", "input: {a: [1, '{{ tasks.x.output }}']}"), 6, "input: there is no task 'x'"),
        (job("type: map", "handler: h", "over: [1]", "as: tasks"), 8, "cannot be the name of a variable"),
        (job("type: map", "run: echo {{ file }}", "over: [1]"), 6, "no variable 'file'"),
        (job("run: x", before="defaults: {concurrency_key: '{{ nothing }}'}"), 2, "no variable 'nothing'"),
        (job("run: x", before="schedule: 61 * * * *"), 2, "schedule: "),
        (two("{name: a, run: x}", "{name: b, run: 'echo {{ tasks.a.output }}'}"), 4, "Add it to its needs"),
        (two("{name: a, run: x}", "{name: b, run: 'echo {{ tasks.a.result }}', needs: a}"), 4, "not 'result'"),
    ],
)
def test_an_expression_that_does_not_parse_or_names_nothing_is_refused(text: str, line: int, words: str) -> None:
    problem = only(text)
    assert problem.line == line
    assert words in problem.message


def test_expressions_may_use_what_their_place_has() -> None:
    load_job(
        """\
name: j
inputs: {n: 1}
tasks:
  - {name: first-one, run: "echo {{ inputs.n }}", gate: "{{ output != tasks.zero.output }}", needs: zero}
  - {name: zero, run: "true", undo: "rm {{ output.path }}"}
  - {name: each, type: map, over: "{{ tasks.first-one.output }}", as: file, run: "cat {{ file }}", needs: first-one}
  - {name: wait, type: wait_for_event, event: "e-{{ inputs.n }}", match: "event.id == inputs.n"}
  - {name: loop, type: loop, handler: h, input: {n: "{{ iteration }}"}, needs: [each]}
  - {name: far, agent: {type: o}, run: "look at {{ tasks.zero.status }}", needs: [loop]}
finally:
  - {name: last, run: "echo {{ tasks.far.error | default('') }} {{ tasks.wait.output }}"}
"""
    )


def test_finally_tasks_come_last_and_are_apart_from_the_others() -> None:
    ok = "name: j\ntasks:\n  - {name: a, run: x}\nfinally:\n  - {name: z, run: x}\n  - {name: y, run: x, needs: [z]}\n"
    assert [(task.name, task.is_finally) for task in load_job(ok).spec.tasks] == [
        ("a", False),
        ("z", True),
        ("y", True),
    ]
    bad = "name: j\ntasks:\n  - {name: a, run: x, needs: [z]}\nfinally:\n  - {name: z, run: x, needs: [a]}\n"
    found = problems(bad)
    assert [(problem.line, problem.element) for problem in found][:2] == [(3, "a"), (3, "a")]
    assert any("Remove the need" in problem.message for problem in found)


def test_j1_all_problems_of_a_file_are_reported_at_once_in_the_order_of_their_lines() -> None:
    text = """\
name: j
fail_fast: no
tasks:
  - name: a
    runn: x
    retry: {limit: 0, dely: 3}
  - name: b
    needs: [c, nope]
    run: x
  - name: c
    needs: [b]
    run: 12
"""
    assert [(problem.line, problem.element) for problem in problems(text)] == [
        (2, None), (5, "a"), (6, "a"), (6, "a"), (8, "b"), (8, "b"), (12, "c"),
    ]  # fmt: skip


def test_of_very_many_problems_the_first_hundred_are_reported() -> None:
    tasks = "".join(f"  - {{name: t{number}, run: x, needs: [nothing-{number}]}}\n" for number in range(200))
    with pytest.raises(InvalidDefinition, match="has at least 100 problems") as caught:
        load_job(f"name: j\ntasks:\n{tasks}")
    assert [problem.line for problem in caught.value.problems] == list(range(3, 103))


def test_two_tasks_with_the_same_mistake_in_one_line_are_both_wrong() -> None:
    wrong, same_name = problems("name: j\ntasks: [{name: a, type: sleep}, {name: a, type: sleep}]\n")
    assert "needs the key 'seconds'" in wrong.message
    assert "two tasks named 'a'" in same_name.message


def test_the_lines_of_a_json_file_are_known_too() -> None:
    text = '{\n  "name": "j",\n  "name": "k",\n  "tasks": [\n    {"name": "a",\n     "run": 1}\n  ]\n}\n'
    assert [(problem.line, problem.element) for problem in problems(text)] == [(3, None), (6, "a")]


def test_a_dict_with_values_that_json_does_not_have_is_refused() -> None:
    assert only({"name": "j", "tasks": [{"name": "a", "run": {1, 2}}]}).line is None


def test_a_chain_and_a_fan_of_ten_thousand_tasks_are_checked() -> None:
    chain = [{"name": "t0", "run": "x"}]
    chain += [{"name": f"t{n}", "run": "x", "needs": [f"t{n - 1}"]} for n in range(1, 10_000)]  # type: ignore[dict-item]
    chain[-1]["on_fail"] = {"regress_to": "t0"}  # type: ignore[assignment]
    assert len(load_job({"name": "j", "tasks": chain}).spec.tasks) == 10_000
    assert "10000" in only({"name": "j", "tasks": [*chain, {"name": "last", "run": "x"}]}).message
