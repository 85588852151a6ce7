"""The first hour of upgrader on a real GPU node: its phases, its journal, its report, and the redaction. Pure."""
