"""A value in a shell command arrives as it is, wherever it stands, in the shells of this machine."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hark.programs.expressions import ExpressionError, compile_template

SHELLS = [shell for shell in ("sh", "bash", "dash") if shutil.which(shell)]
TRICKY = [
    "",
    " ",
    "it's",
    '"',
    "$HOME",
    "$(echo no)",
    "`echo no`",
    "\\",
    "a\\",
    "\n# x\necho no",
    "-n",
    "*",
    "~",
    "é 😀",
    "!x",
]

CHARACTERS = st.characters(exclude_characters="\0\r", exclude_categories=["Cs"])

PLACES = r"""
show() { for part in "$@"; do printf '<%s>' "$part"; done; printf '\n'; }
# a comment with {{ x }} in it
show {{ x }} a{{ x }}b '{{ x }}' "{{ x }}" 'a'"b{{ x }}"'{{ x }}c'
show $(printf '%s.' {{ x }}) >/dev/null
show "$(printf '%s.' {{ x }} '{{ x }}')" "$(printf '%s.' "{{ x }}")"  # {{ x }}
y={{ x }}; show "$y" \
  {{ x }} "${y}$((1 + {{ n }}))"
cat <<-'END' <<< here >/dev/null || true
	it's "not" a quote
	END
case a in b) show no;; a) show {{ x }};; esac
"""


def run(shell: str, command: str) -> str:
    done = subprocess.run([shell, "-c", command], capture_output=True, text=True, check=False, timeout=60)
    assert done.stderr == "", f"{command}\n{done.stderr}"
    return done.stdout


def expected(x: str) -> str:
    substituted = (f"{x}.{x}.", f"{x}.")
    lines = [[x, f"a{x}b", x, x, f"ab{x}{x}c"], [*substituted], [x, x, f"{x}4"], [x]]
    return "".join("".join(f"<{part}>" for part in line) + "\n" for line in lines)


@pytest.mark.parametrize("shell", SHELLS)
@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from(TRICKY) | st.text(st.characters(exclude_characters="\0\r", exclude_categories=["Cs"]), max_size=8)
)
def test_a_value_arrives_as_it_is(shell: str, x: str) -> None:
    places = PLACES if shell == "bash" else PLACES.replace("<<< here ", "")
    command = compile_template(places).render_shell({"x": x, "n": 3})
    assert run(shell, command) == expected(x)


@pytest.mark.parametrize(
    "command",
    [
        "echo `echo {{ x }}`",
        "echo ${a:-{{ x }}}",
        "cat <<END\n{{ x }}\nEND",
        "cat << 'END' && echo y\n{{ x }}\nEND",
        "cat <<{{ x }}",
        "echo \\{{ x }}",
        'echo "\\{{ x }}"',
        "echo ${{ x }}",
        'echo "${{ x }}"',
        "echo $((1 + {{ x }}))",
        "echo $['{{ x }}']",
        "echo $'a\\'' {{ x }}",
        """echo "${a#'}" {{ x }}""",
        "echo $(case a in a) echo {{ x }};; esac)",
        "(( a < 1 )) && echo {{ x }}",
    ],
)
def test_a_value_that_cannot_be_quoted_at_its_place_is_refused(command: str) -> None:
    template = compile_template(command)
    with pytest.raises(ExpressionError) as caught:
        template.render_shell({"x": "a"})
    assert caught.value.position == command.index("{{") + 3
    if "$((1" not in command:  # whether it is a number is known only with the value
        with pytest.raises(ExpressionError):
            template.check_shell()


def test_a_raw_value_is_not_quoted_and_its_quotes_count() -> None:
    template = compile_template("echo {{ x | raw }}{{ y }}{{ x | raw }}")
    assert template.render_shell({"x": "a b ", "y": "c d"}) == "echo a b 'c d'a b "
    assert template.render_shell({"x": '"', "y": "$c"}) == 'echo "\\$c"'
    assert template.render_shell({"x": "'", "y": "it's"}) == "echo 'it'\\''s'"
    template.check_shell()


def test_other_values_are_json() -> None:
    command = compile_template("echo {{ a }} {{ b }} {{ c }} {{ d }}").render_shell(
        {"a": 1, "b": None, "c": True, "d": ["x"]}
    )
    assert command == """echo '1' 'null' 'true' '["x"]'"""


def test_a_nul_is_refused() -> None:
    with pytest.raises(ExpressionError, match="NUL"):
        compile_template("echo {{ x }}").render_shell({"x": "a\0b"})
