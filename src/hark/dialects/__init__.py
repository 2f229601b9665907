"""What users write: machines, workflows, jobs, BPMN. Imports programs and model."""
