"""Fakes and builders that several folders of tests share."""
