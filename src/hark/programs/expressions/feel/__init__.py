"""FEEL, the expression language of DMN and of Zeebe's BPMN files: `=order.total > 100 and count(order.items) < 3`.

lexer.py and parser.py build the tree of the other syntaxes, with a few nodes of its own. evaluator.py gives it the
meaning that FEEL has: a name that does not exist is null, values that do not fit give null, logic has three values, and
numbers are decimal. values.py and temporal.py have the values, the files *_functions.py the functions.
"""
