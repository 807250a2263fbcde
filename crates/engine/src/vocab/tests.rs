use super::*;

#[test]
fn a_completion_is_laid_out_as_in_c() {
    assert_eq!(size_of::<Wc>(), 48);
    assert_eq!(core::mem::offset_of!(Wc, qp_num), 28);
    assert_eq!(core::mem::offset_of!(Wc, pkey_index), 40);
    assert_eq!(size_of::<Sge>(), 16);
}

#[test]
fn bits_know_their_names() {
    let names: Vec<_> = (QpAttrMask::STATE | QpAttrMask::AV).names().collect();
    assert_eq!(names, ["STATE", "AV"]);
}
