import pytest

from tests.support.packages import package
from upgrader.images.debian.kernels import Dependency, DescribedPackage, find_kernels, parse_dependencies
from upgrader.images.debian.values import IncompleteKernel

RELEASE = "6.12.107+deb13-amd64"


def described(name, version="1", depends="", **more):
    return DescribedPackage(package=package(name, version, **more), depends=parse_dependencies(depends))


def parts(version="1", **more):
    exact = f"(= {version})"
    needed = f"linux-headers-6.12.107+deb13-common {exact}, linux-kbuild-6.12.107+deb13, gcc-14"
    return [
        described(f"linux-headers-{RELEASE}", version, needed, **more),
        described("linux-headers-6.12.107+deb13-common", version, **more),
        described("linux-kbuild-6.12.107+deb13", version, **more),
        described(f"linux-image-{RELEASE}", version, "kmod, initramfs-tools (>= 0.120) | dracut", **more),
    ]


def the_kernel(offered):
    (kernel,), lacking = find_kernels(offered, "amd64")
    assert lacking == ()
    return kernel


def test_a_kernel_with_all_that_it_is_made_of():
    headers, common, kbuild, image = parts()
    kernel = the_kernel([image, kbuild, common, headers])
    assert (kernel.release, kernel.os, kernel.flavour, kernel.compiler) == (RELEASE, "trixie", "amd64", "gcc-14")
    assert kernel.headers == (headers.package, common.package, kbuild.package)
    assert kernel.image == (image.package,)


@pytest.mark.parametrize("name", ["linux-headers-6.12.107+deb13-common", "linux-kbuild-6.12.107+deb13"])
def test_a_kernel_that_lacks_a_part_says_which(name):
    offered = [one for one in parts() if one.package.name != name]
    assert find_kernels(offered, "amd64") == ((), (IncompleteKernel(release=RELEASE, os="trixie", missing=(name,)),))


def test_a_part_of_another_version_does_not_count():
    offered = [one for one in parts() if "common" not in one.package.name]
    offered.append(described("linux-headers-6.12.107+deb13-common", "2"))
    (lacking,) = find_kernels(offered, "amd64")[1]
    assert lacking.missing == ("linux-headers-6.12.107+deb13-common",)


def test_headers_without_a_compiler_are_not_enough():
    offered = parts()
    offered[0] = described(f"linux-headers-{RELEASE}", depends="linux-kbuild-6.12.107+deb13")
    (lacking,) = find_kernels(offered, "amd64")[1]
    assert lacking.missing == ("the compiler that it names",)


def test_an_image_of_another_version_is_not_the_kernel_of_these_headers():
    offered = [one for one in parts() if "image" not in one.package.name]
    offered.append(described(f"linux-image-{RELEASE}", "2"))
    (lacking,) = find_kernels(offered, "amd64")[1]
    assert lacking.missing == (f"linux-image-{RELEASE}",)


def test_the_unsigned_image_will_do_where_there_is_no_other():
    offered = [one for one in parts() if "image" not in one.package.name]
    offered.append(described(f"linux-image-{RELEASE}-unsigned"))
    assert the_kernel(offered).image == (offered[-1].package,)
    assert the_kernel([*offered, *parts()]).image == (parts()[-1].package,)


def test_of_several_kbuilds_the_oldest_that_will_do():
    headers, common, _kbuild, image = parts()
    needed = "linux-headers-6.12.107+deb13-common, linux-kbuild-6.1 (>= 6.1.176-1), gcc-12"
    headers = described(f"linux-headers-{RELEASE}", depends=needed)
    offered = [described("linux-kbuild-6.1", version) for version in ("6.1.192-2", "6.1.176-1", "6.1.170-3")]
    kernel = the_kernel([headers, common, image, *offered])
    assert [one.version for one in kernel.headers if one.name == "linux-kbuild-6.1"] == ["6.1.176-1"]


def test_a_release_published_anew_is_the_newest_of_it():
    kernel = the_kernel([*parts("2"), *parts("10")])
    assert {one.version for one in kernel.packages if "kbuild" not in one.name} == {"10"}


def test_parts_of_another_distribution_do_not_count():
    headers, *rest = parts()
    others = [described(one.package.name, suites=("bookworm",)) for one in rest]
    whole, lacking = find_kernels([headers, *others], "amd64")
    assert whole == ()
    assert {one.os: len(one.missing) for one in lacking} == {"trixie": 3, "bookworm": 1}


def test_parts_of_the_same_distributions_other_suites_do():
    headers, *rest = parts()
    others = [described(one.package.name, suites=("trixie-security",)) for one in rest]
    assert the_kernel([headers, *others]).os == "trixie"


@pytest.mark.parametrize("name", ["linux-headers-amd64", "linux-image-6.12-rt-amd64", "linux-image-6.1.0-47-arm64"])
def test_packages_that_are_no_kernel_of_this_machine(name):
    assert find_kernels([described(name)], "amd64") == ((), ())


def test_dependencies_are_read_with_the_first_of_alternatives():
    text = "libc6:any (>= 2.34), initramfs-tools (>= 0.120) | dracut, gcc-14, (odd), "
    assert parse_dependencies(text) == (
        Dependency(name="libc6", operator=">=", version="2.34"),
        Dependency(name="initramfs-tools", operator=">=", version="0.120"),
        Dependency(name="gcc-14"),
    )
