import pytest

from rehearsal.request import choose_device, read_devices
from train.errors import UsageError
from train.record.reader import MARK


@pytest.mark.parametrize("name", read_devices())
def test_each_device_is_complete_sourced_and_marked_as_emulated(name: str) -> None:
    device = choose_device(name)
    assert device.name.endswith(MARK)
    assert read_devices()[name]["source"]
    assert device.capability >= (6, 0)
    assert device.memory > 10e9
    assert device.multiprocessors >= 40


def test_a_device_can_be_changed() -> None:
    changed = choose_device("T4", driver="11.2", memory=2, capability="5.2", count=2)
    assert (changed.driver, changed.memory, changed.capability, changed.count) == ((11, 2), 2_000_000_000, (5, 2), 2)


@pytest.mark.parametrize(
    "wrong", [{"name": "t5"}, {"driver": "12"}, {"memory": -1.0}, {"capability": "75"}, {"count": 3}]
)
def test_a_wrong_device_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        choose_device(**{"name": "t4", **wrong})  # type: ignore[arg-type]
