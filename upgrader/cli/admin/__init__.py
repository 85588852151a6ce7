"""`upgrader controller`, `crds`, `uninstall`, `adopt`, `guard-rails`, `node-labels`.

Here: the commands and their actions.
Not here: the controller itself.
"""
