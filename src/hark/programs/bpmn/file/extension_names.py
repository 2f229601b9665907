"""The names of extensions of Camunda, Zeebe, Flowable and Activiti: understood, harmless, or refused.

Taken from the schemas of the vendors (camunda-bpmn-moddle 8, zeebe-bpmn-moddle 2, the constants of Flowable and
Activiti). A name that is in none of these tables has a meaning neither for these engines nor for Hark.
"""

from __future__ import annotations

from typing import NamedTuple

VENDORS = ("camunda", "flowable", "activiti")
"""Vendors that share their names: Flowable and Camunda 7 began as Activiti."""

UNDERSTOOD_ATTRIBUTES = frozenset(
    ("assignee", "businessKey", "calledElementBinding", "calledElementVersion", "candidateGroups", "candidateUsers",
     "class", "collection", "decisionRef", "delegateExpression", "dueDate", "elementIndexVariable", "elementVariable",
     "endDate", "errorCodeVariable", "errorMessage", "errorMessageVariable", "errorVariableName",
     "escalationCodeVariable", "expression", "idVariableName", "inheritBusinessKey", "inheritVariables",
     "messageExpression", "resource", "resultVariable", "resultVariableName", "scope", "signalExpression",
     "skipExpression", "taskCompleterVariableName", "taskIdVariableName", "terminateAll", "terminateMultiInstance",
     "topic", "type", "useLocalScopeForResultVariable", "variableEvents", "variableName")
)  # fmt: skip
"""Attributes of the vendors that are read where they are used."""

UNDERSTOOD_ZEEBE_ATTRIBUTES = frozenset(
    f"zeebe:{name}" for name in ("collection", "elementVariable", "outputCollection", "outputElement")
)
"""Attributes of a multi-instance with the prefix of Zeebe, as Fleans writes them. Zeebe itself has an element."""

UNDERSTOOD_ELEMENTS = frozenset(
    [f"{vendor}:{name}" for vendor in VENDORS for name in (
        "collection", "failedJobRetryTimeCycle", "field", "formData", "formProperty", "in", "inputOutput", "out",
        "variableAggregation",
    )]
    + [f"zeebe:{name}" for name in (
        "assignmentDefinition", "calledDecision", "calledElement", "conditionalFilter", "formDefinition", "ioMapping",
        "loopCharacteristics", "script", "subscription", "taskDefinition", "taskHeaders", "taskSchedule", "userTask",
        "userTaskForm",
    )]
)  # fmt: skip
"""Extension elements that are read where they are used."""

DATA_VALUES = frozenset(f"{vendor}:value" for vendor in VENDORS)
"""The values of data objects; elsewhere these elements mean nothing."""

HARMLESS_ATTRIBUTES = frozenset(
    (
        # when and in which transaction the engine works, how it is stored, and what a modeler keeps
        "async", "asyncAfter", "asyncBefore", "asyncLeave", "completeAsync", "diagramRelationId", "exclusive",
        "historyTimeToLive", "isEagerExecutionFetching", "jobPriority", "modelerTemplate", "modelerTemplateIcon",
        "modelerTemplateVersion", "modelerConfigurationName", "modelerConfigurationTemplate", "noWaitStatesAsyncLeave",
        "parallelInSameTransaction", "retryCounter", "taskPriority", "errorVariableTransient",
        "errorVariableLocalScope",
        # rights to start a process; names, tenants and deployments of definitions
        "calledElementTenantId", "candidateStarterGroups", "candidateStarterUsers", "caseInstanceName", "caseTenantId",
        "category", "decisionRefTenantId", "extensionId", "fallbackToDefaultTenant", "initiator",
        "isStartableInTasklist", "owner", "processInstanceName", "sameDeployment", "versionTag",
        # lists of tasks and forms outside the file
        "followUpDate", "formFieldValidation", "formKey", "formRef", "formRefBinding", "formRefVersion", "priority",
        # what only matters beside another extension, which is read or refused
        "calledElementVersionTag", "caseBinding", "caseDefinitionKey", "caseRef", "caseVersion", "alfrescoScriptType",
        "autoStoreVariables",
        # how a decision or a rule is found and what is made of its result: a handler takes their place
        "decisionRefBinding", "decisionRefVersion", "exclude", "mapDecisionResult", "ruleVariablesInput", "rules",
    )
)  # fmt: skip
"""Attributes of the vendors and of Zeebe that change nothing in Hark."""

NOTES = {"initiator": "Hark does not know who starts an instance. If the process uses the variable, start it with one"}
"""The notes for people about a harmless attribute."""

HARMLESS_ELEMENTS = frozenset(
    [f"{vendor}:{name}" for vendor in VENDORS for name in (
        "customResource", "httpRequestHandler", "httpResponseHandler", "localization", "potentialStarter", "properties",
        "sendSynchronously", "startEventCorrelationConfiguration", "eventCorrelationParameter", "eventInParameter",
        "eventOutParameter", "triggerEventCorrelationParameter",
    )]
    + [f"zeebe:{name}" for name in (
        "agentDefinition", "jobPriorityDefinition", "linkedResources", "priorityDefinition", "properties", "versionTag",
    )]
)  # fmt: skip
"""Extension elements that change nothing in Hark, or only matter beside another one that is refused."""


class Refusal(NamedTuple):
    """An extension that would change what happens, and that Hark does not run.

    Attributes:
        reason: A sentence that says what it would do.
        instead: A sentence that says what to do instead.
        values: The values of an attribute that are refused; None: every value.
    """

    reason: str
    instead: str
    values: tuple[str, ...] | None = None


_OWN_TASK = "Make it a task of its own."
_EXECUTION = Refusal("It has an execution listener ({name}), which Hark does not run.", _OWN_TASK)
_TASK = Refusal("It has a task listener ({name}), which Hark does not run.", _OWN_TASK)
_EVENT = Refusal("It has an event listener ({name}), which Hark does not run.", _OWN_TASK)
_JAVA_MAPPING = Refusal(
    "It maps the variables of the call in Java ({name}), which Hark does not run.", "Write them as in and out elements."
)
_EVENT_REGISTRY = Refusal(
    "It uses the event registry of Flowable ({name}), which Hark does not have.", "Use a message or a signal."
)
_TRANSIENT = Refusal(
    "A variable is forgotten at the next wait ({name}), which Hark does not do.", "Remove it.", ("true",)
)

REFUSED_ELEMENTS: dict[str, Refusal] = {
    "executionListener": _EXECUTION,
    "executionListeners": _EXECUTION,
    "taskListener": _TASK,
    "taskListeners": _TASK,
    "eventListener": _EVENT,
    "connector": Refusal("It has a connector ({name}), which Hark does not run.", _OWN_TASK),
    "errorEventDefinition": Refusal(
        "It throws an error by an expression when its work is done ({name}), which Hark does not do.",
        "Raise BpmnError in its handler, or put a gateway and an error end event behind it.",
    ),
    "mapException": Refusal(
        "It maps exceptions of Java to error codes ({name}), which Hark does not do.",
        "Raise BpmnError with the code in its handler.",
    ),
    "eventType": _EVENT_REGISTRY,
    "triggerEventType": _EVENT_REGISTRY,
    "variableListenerEventDefinition": Refusal(
        "It waits for a variable to be set ({name}), which Hark does not do.", "Use a conditional event."
    ),
}
"""Extension elements of the vendors and of Zeebe that are refused, by their name without a prefix."""

REFUSED_ATTRIBUTES: dict[str, Refusal] = {
    "variableMappingClass": _JAVA_MAPPING,
    "variableMappingDelegateExpression": _JAVA_MAPPING,
    "businessCalendarName": Refusal(
        "Its time is that of a business calendar ({name}), which Hark does not have.",
        "Compute the time in an expression.",
    ),
    "triggerable": Refusal(
        "It would wait for a trigger when its work is done ({name}), which Hark does not do.",
        "Put a receive task or a message event behind it.",
        ("true",),
    ),
    "calledElementType": Refusal(
        "It calls a process by the id of a definition ({name}), which Hark does not have.",
        "Use the id of the process, and its version.",
        ("id",),
    ),
    "storeResultVariableAsTransient": Refusal(
        "Its result is forgotten at the next wait ({name}), which Hark does not do.",
        "Remove it, or map the result with an output parameter.",
        ("true",),
    ),
    "useLocalScopeForOutParameters": Refusal(
        "What comes out of the call stays a local variable ({name}), which Hark does not do.",
        "Remove it, or use out elements with other targets.",
        ("true",),
    ),
    "formHandlerClass": Refusal(
        "Its answer is changed in Java ({name}), which Hark does not run.", "Change it in a task behind it."
    ),
}
"""Attributes of the vendors that are refused."""

REFUSED_PARTS: dict[tuple[str, str], Refusal] = {
    (element, attribute): Refusal(f"{what} in Java ({{name}}), which Hark does not run.", instead)
    for element, what, instead in (
        ("collection", "Its collection is made", "Use an expression that gives a list."),
        ("variableAggregation", "The variables of its instances are gathered", "Name them in variable elements."),
    )
    for attribute in ("class", "delegateExpression")
} | {
    ("variableAggregation", "createOverviewVariable"): Refusal(
        "Its variable is to have the results of the instances while they run ({name}), which Hark does not do.",
        "Remove it: the variable has them at the end.",
        ("true",),
    ),
    ("in", "transient"): _TRANSIENT,
    ("out", "transient"): _TRANSIENT,
    ("formProperty", "expression"): Refusal(
        "The answer is put where an expression says ({name}), which Hark does not do.",
        "Use the variable attribute, and a script task behind it.",
    ),
    ("constraint", "name"): Refusal(
        "An answer is checked in Java ({name}), which Hark does not run.",
        "Use min, max, minlength, maxlength, required and readonly, or check it in a task behind it.",
        ("validator",),
    ),
}
"""Attributes inside extension elements that are refused, by the names of element and attribute without prefixes."""
