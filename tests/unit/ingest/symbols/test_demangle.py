from __future__ import annotations

import string
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overnight.ingest.symbols import cplusplus, demangle, rust

CPLUSPLUS = {
    "_ZN2ns3BoxIlE4workERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEi": "ns::Box<long>::work",
    "_ZN12_GLOBAL__N_16hiddenEd": "(anonymous namespace)::hidden",
    "_ZNK3Foo3barEv": "Foo::bar",
    "_ZN3Foo3barEv.cold": "Foo::bar",
    "_ZN3Foo3barEv.constprop.0": "Foo::bar",
    "_ZNSt6vectorIiSaIiEED1Ev@@GLIBCXX_3.4": "std::vector<int, std::allocator<int> >::~vector",
    "_ZStlsISt11char_traitsIcEERSt13basic_ostreamIcT_ES5_PKc": "std::operator<< <std::char_traits<char> >",
    "_ZZ4mainENKUliE_clEi": "main::{lambda(int)#1}::operator()",
    "_ZZNK1A1fEvENKUlvE_clEv": "A::f() const::{lambda()#1}::operator()",
    "_Z3maxIiET_S0_S0_": "max<int>",
    "_ZNK1AcvbEv": "A::operator bool",
    "_Znwm": "operator new",
    "_ZTV3Foo": "vtable for Foo",
    "_ZThn16_N3Foo3barEi": "non-virtual thunk to Foo::bar(int)",
    "_ZN2ns8variableE": "ns::variable",
    "_ZN3foo3barEv@plt": "foo::bar@plt",
}
RUST = {
    "_ZN1r5inner10S$LT$T$GT$4work17h0123456789abcdefE": "r::inner::S<T>::work",
    "_ZN52_$LT$alloc..vec..Vec$LT$u64$GT$$u20$as$u20$r..Tr$GT$2go17h0123456789abcdefE.llvm.77": "<alloc::vec::Vec<u64> as r::Tr>::go",
    "_RNvC1r4main": "r::main",
    "_RNvMNtC1r5innerINtB2_1SyE4work": "<r::inner::S<u64>>::work",
    "_RINvC1r5applyNCNvC1r4main0E": "r::apply::<r::main::{closure#0}>",
    "_RNvXC1rINtNtC5alloc3vec3VecyENtC1r2Tr2go": "<alloc::vec::Vec<u64> as r::Tr>::go",
    "_RINvC1r1fAhj10_RSeTlbEE": "r::f::<[u8; 16], &[str], (i32, bool)>",
    "_RINvC1r1fFUKCPhEuE": 'r::f::<unsafe extern "C" fn(*const u8)>',
    "_RINvC1r1fDNtC1r1TEL_E": "r::f::<dyn r::T>",
    "_RINvC1r1fKb1_Kc41_Kin5_E": "r::f::<true, 'A', -5>",
}
OTHERS = {
    "main": "main",
    "camlFoo__bar_12": "Foo.bar_12",
    "camlStdlib__$2b$2b_1": "Stdlib.++_1",
    "caml_main": "caml_main",
    "_Z": "_Z",
    "_R": "_R",
    "_ZN": "_ZN",
    "_Zörtlich": "_Zörtlich",
    "_GLOBAL__sub_I_main": "_GLOBAL__sub_I_main",
    "_Z" + "x" * 9000: "_Z" + "x" * 9000,
}


@pytest.mark.parametrize(("mangled", "expected"), {**CPLUSPLUS, **RUST, **OTHERS}.items())
def test_names_are_the_same_as_in_perf(mangled: str, expected: str) -> None:
    assert demangle.readable(mangled) == expected


def growing(steps: int) -> str:
    """`f(A, B<A, A>, B<B<A, A>, B<A, A>>, ...)`: each step doubles the text."""
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    parts = [f"S0_IS{digits[i]}_S{digits[i]}_E" for i in range(1, steps)]
    return "_Z1f1A1BIS_S_E" + "".join(parts)


def test_a_name_that_expands_to_gigabytes_is_not_demangled(monkeypatch) -> None:
    monkeypatch.setattr(cplusplus, "PATIENCE", 0.2)
    monkeypatch.setattr(cplusplus, "WORKER", cplusplus._Worker())
    begin = time.monotonic()
    assert demangle.readable(growing(34)) == growing(34)
    assert time.monotonic() - begin < 5  # without a limit it takes minutes
    assert demangle.readable("_ZN5after5thatsEv") == "after::thats"
    cplusplus.WORKER.close()


def test_names_demangled_in_a_batch_are_the_same(monkeypatch) -> None:
    names = [f"_ZN5batch{len(str(i)) + 1}n{i}Ev" for i in range(3000)]  # more than a pipe holds
    monkeypatch.setattr(cplusplus, "WORKER", cplusplus._Worker())
    demangle.expect([*names, *CPLUSPLUS, *RUST, *OTHERS, "_Znone", "_Z\nline", "_Z" + "é"])
    requests = []
    monkeypatch.setattr(cplusplus.WORKER, "_running", lambda: requests.append(1))
    assert [demangle.readable(name) for name in names] == [f"batch::n{i}" for i in range(3000)]
    assert demangle.readable("_Z\nline") == "_Z\nline"
    assert not requests  # no name needed a separate request
    monkeypatch.undo()
    for mangled, expected in {**CPLUSPLUS, **RUST, **OTHERS}.items():
        assert demangle.readable(mangled) == expected


def test_one_oversized_name_does_not_affect_the_others(monkeypatch) -> None:
    monkeypatch.setattr(cplusplus, "PATIENCE", 0.2)
    monkeypatch.setattr(cplusplus, "WORKER", cplusplus._Worker())
    demangle.expect(["_ZN5among4goodEv", growing(33), "_ZN5among6othersEv"])
    assert demangle.readable("_ZN5among4goodEv") == "among::good"
    assert demangle.readable("_ZN5among6othersEv") == "among::others"
    assert demangle.readable(growing(33)) == growing(33)
    cplusplus.WORKER.close()


def doubling(steps: int) -> str:
    """`a::b::<(u8,), ((u8,), (u8,)), ...>`: each argument holds the one before it twice."""
    digits = string.digits + string.ascii_letters
    text = "INvC1a1bThE"
    earlier = 8
    for _ in range(steps):
        number = earlier - 1
        code = (digits[number // 62] if number >= 62 else "") + digits[number % 62]
        earlier = len(text)
        text += f"TB{code}_B{code}_E"
    return f"_R{text}E"


def test_rust_names_that_refer_to_themselves_are_limited() -> None:
    assert rust.demangle(doubling(2)) == (
        "a::b::<(u8,), ((u8,), (u8,)), (((u8,), (u8,)), ((u8,), (u8,)))>"
    )
    begin = time.process_time()
    assert rust.demangle(doubling(40)) is None
    assert rust.demangle("_R" + "IB_" * 300) is None
    assert rust.demangle("_RNvC1a1b" + "T" * 3000) is None
    assert time.process_time() - begin < 1


def test_without_a_c_plus_plus_library_names_stay_as_they_are(monkeypatch, tmp_path) -> None:
    missing = tmp_path / "missing.py"
    monkeypatch.setattr(cplusplus.cxa_worker, "__file__", str(missing))
    worker = cplusplus._Worker()
    assert worker.ask("_ZN3one4moreEv") is None
    worker.close()


@given(st.text("_RNvCINBTEsS0123456789abcuGLKFD", max_size=60))
def test_any_rust_name_is_text_or_none(tail: str) -> None:
    name = rust.demangle("_R" + tail)
    assert name is None or isinstance(name, str)


@given(st.text(max_size=40))
def test_any_legacy_name_is_text_or_none(middle: str) -> None:
    name = rust.demangle(f"_ZN{middle}17h0123456789abcdefE")
    assert name is None or isinstance(name, str)
