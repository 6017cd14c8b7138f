"""SGLang: its command line, process, protocol, evidence and gate."""
