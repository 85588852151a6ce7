"""Fleet files: what they mean, and what is said about those that cannot be read."""

import pytest

from tests.support.repository import ROOT
from upgrader.core.errors import ConfigurationError
from upgrader.simulate.fleets.fleet import EventKind, Fleet, FleetEvent, FleetJob, FleetNode
from upgrader.simulate.fleets.fleet_file import load_fleet, parse_fleet

WHOLE = Fleet(
    name="mine",
    nodes=(FleetNode(name="a", gpus=4, model="A100", rack="r1"), FleetNode(name="b")),
    jobs=(
        FleetJob(
            name="train",
            size=2,
            nodes=("a", "b"),
            gpus=4,
            start=-21600,
            end=108000,
            declared_end=108000,
            min_runtime=7200,
            timeout=600,
            checkpoint=180,
            lane="scratch",
            refuses=1,
        ),
        FleetJob(name="later", size=1, start=5400, end=9000, method="none"),
    ),
    events=(FleetEvent(at=3600, what=EventKind.JOB_GROWS, subject="later", value="b"),),
)

JSON = """{"name": "mine",
 "nodes": [{"name": "a", "gpus": 4, "model": "A100", "rack": "r1"}, {"name": "b"}],
 "jobs": [
  {"name": "train", "nodes": ["a", "b"], "gpus": 4, "start": "-6h", "end": "30h", "declaredEnd": "30h",
   "minRuntime": "2h", "timeout": "10m", "checkpoint": "3m", "lane": "scratch", "refuses": 1},
  {"name": "later", "size": 1, "start": "1h30m", "end": "2h30m", "method": "none"}],
 "events": [{"at": "1h", "what": "JobGrows", "subject": "later", "value": "b"}]}"""

COLUMNS = "kind name nodes size gpus model rack start end declaredEnd minRuntime timeout checkpoint lane refuses method"
CSV = (
    COLUMNS.replace(" ", ",")
    + """,at,what,subject,value
node,a,,,4,A100,r1,,,,,,,,,,,,,
node,b,,,,,,,,,,,,,,,,,,
job,train,a b,,4,,,-6h,30h,30h,2h,10m,3m,scratch,1,,,,,
job,later,,1,,,,1h30m,2h30m,,,,,,,none,,,,
event,,,,,,,,,,,,,,,,1h,JobGrows,later,b
"""
)


def test_json_and_csv_say_the_same():
    assert parse_fleet(JSON, name="fleet.json") == WHOLE
    assert parse_fleet(CSV, name="mine.csv", comma=True) == WHOLE


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[", "fleet.json, as a whole: "),
        ('{"nodes": []}', "fleet.json, as a whole: the file contains no nodes"),
        ('{"nodes": [{"name": 1}]}', r"nodes\[0\]: Expected `str`, got `int` - at `\$.name`"),
        ('{"nodes": [{"name": "a", "colour": 1}]}', r"nodes\[0\]: .*unknown field `colour`"),
        ('{"nodes": [{"name": "a"}, {"name": "a"}]}', r"nodes\[1\]: node a exists twice"),
        ('{"nodes": [{"name": "a", "gpus": 0}]}', r"nodes\[0\]: node a has 0 GPUs"),
    ],
)
def test_faults_of_a_file_are_told_with_their_place(text, said):
    with pytest.raises(ConfigurationError, match=said):
        parse_fleet(text, name="fleet.json")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("job,j,a,,soon", "line 3: job j: start is 'soon', which is not a duration"),
        ("job,j,a,2,", "line 3: job j: specify nodes"),
        ("job,j,a,,1h", "line 3: job j: it starts after 1h, so the scheduler places it"),
        ("job,j,,1,-1h", "line 3: job j: it runs already"),
        ("job,j,z,,", "line 3: job j: node z does not exist"),
        ("job,j,a a,,", "line 3: job j: 8 GPUs on node a, which has 0 free"),
        ("rack,j,,,", "line 3: kind is 'rack', which is none of node, job, event"),
        ("job,j,a,,,maybe", "line 3: job j: method is 'maybe', which is none of file, none, undeclared"),
        ("job,j,a,one,", "line 3: Expected `int`, got `str`"),
        ("node,b,,,,,too,many", "line 3: .*more columns"),
    ],
)
def test_faults_of_rows_are_told_with_their_line(row, said):
    with pytest.raises(ConfigurationError, match=said):
        parse_fleet(f"kind,name,nodes,size,start,method\nnode,a,,,,\n{row}\n", name="f.csv", comma=True)


@pytest.mark.parametrize(
    ("event", "said"),
    [
        ("1h,JobEnds,nobody,", "event JobEnds: job nobody does not exist"),
        ("1h,NodeLeaves,nobody,", "event NodeLeaves: node nobody does not exist"),
        ("1h,NodeRenamed,a,a", "event NodeRenamed: value is not a new name"),
        ("1h,NodeJoins,b,nobody", "event NodeJoins: value is not the name of a node"),
        ("1h,UpgradeFails,a,often", "event UpgradeFails: value is not a number of failures"),
        ("1h,Meteor,a,", "Invalid enum value 'Meteor'"),
        ("soon,NodeLeaves,a,", "event NodeLeaves: at is 'soon'"),
    ],
)
def test_faults_of_events_are_told(event, said):
    with pytest.raises(ConfigurationError, match=said):
        parse_fleet(f"kind,name,at,what,subject,value\nnode,a,,,,\nevent,,{event}\n", name="f.csv", comma=True)


def test_a_csv_file_without_kinds_is_told():
    with pytest.raises(ConfigurationError, match="line 1: the first line must contain the column names"):
        parse_fleet("name,gpus\na,8\n", name="f.csv", comma=True)


def test_a_file_that_is_not_text_is_told(tmp_path):
    path = tmp_path / "fleet.json"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load_fleet(path)


@pytest.mark.parametrize("path", sorted((ROOT / "docs/examples").glob("fleet.*")), ids=lambda path: path.name)
def test_the_documented_examples_can_be_read(path):
    assert load_fleet(path).jobs
