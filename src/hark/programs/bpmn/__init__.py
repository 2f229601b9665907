"""BPMN: the spec of a process, its file (file/), its drawing (drawing/, layout/) and its interpreter."""
