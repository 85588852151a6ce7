"""`upgrader controller`, `crds`, `uninstall`, `adopt`, `guard-rails`, `node-labels`.

Here: the commands, and what each does.
Not here: the controller itself.
"""
