//! `#[derive(PmSafe)]`: a struct of types that may be kept in a persistent heap may be kept there
//! too. The derived code has no unsafe code. zerocopy's derives, which stand beside it, refuse
//! padding.
#![forbid(unsafe_code)]

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::spanned::Spanned;
use syn::{
    Data, DeriveInput, Error, Fields, Index, Member, parse_macro_input, parse_quote_spanned,
};

/// Implements `pmlib::PmSafe` for a struct with `#[repr(C)]` or `#[repr(transparent)]`, all of
/// whose fields have types that implement it. It stands beside zerocopy's derives of `FromBytes`,
/// `IntoBytes`, `Immutable` and `KnownLayout`.
#[proc_macro_derive(PmSafe)]
pub fn derive_pm_safe(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    let code = pm_safe(&input);
    code.unwrap_or_else(Error::into_compile_error).into()
}

fn pm_safe(input: &DeriveInput) -> Result<TokenStream, Error> {
    let fields = fields(input)?;
    if !has_fixed_layout(input)? {
        let span = input.ident.span();
        let text = "what is kept in a heap has a layout that every build agrees on: add #[repr(C)]";
        return Err(Error::new(span, text));
    }
    let name = &input.ident;
    let types: Vec<_> = fields.iter().map(|field| &field.ty).collect();
    let mut generics = input.generics.clone();
    let conditions = &mut generics.make_where_clause().predicates;
    for ty in &types {
        // At the field's place: a type that may not be kept is refused there, and nowhere else.
        conditions.push(parse_quote_spanned!(ty.span()=> #ty: ::pmlib::PmSafe));
    }
    let (bounds, arguments, conditions) = generics.split_for_impl();
    let members: Vec<Member> = members(fields);
    let names = members.iter().map(|member| match member {
        Member::Named(name) => name.to_string(),
        Member::Unnamed(index) => index.index.to_string(),
    });
    Ok(quote! {
        #[automatically_derived]
        impl #bounds ::pmlib::PmSafe for #name #arguments #conditions {
            const FINGERPRINT: u64 = {
                let print = ::pmlib::safe::of_text("struct");
                #(
                    let print = ::pmlib::safe::mix(print, ::pmlib::safe::of_text(#names));
                    let print = ::pmlib::safe::mix(print, <#types as ::pmlib::PmSafe>::FINGERPRINT);
                    let place = ::core::mem::offset_of!(Self, #members);
                    let print = ::pmlib::safe::mix(print, place as u64);
                )*
                ::pmlib::safe::mix(print, ::core::mem::size_of::<Self>() as u64)
            };

            fn trace(&self, visit: &mut dyn FnMut(::pmlib::RawP)) {
                #(::pmlib::PmSafe::trace(&self.#members, visit);)*
            }
        }
    })
}

fn fields(input: &DeriveInput) -> Result<&Fields, Error> {
    let what = match &input.data {
        Data::Struct(data) => return Ok(&data.fields),
        Data::Enum(_) => "an enum has values that mean nothing: keep a number, and a check of it",
        Data::Union(_) => "nothing tells which part of a union is there: keep a struct",
    };
    Err(Error::new(input.ident.span(), what))
}

fn members(fields: &Fields) -> Vec<Member> {
    let numbered = |(at, field): (usize, &syn::Field)| match &field.ident {
        Some(name) => Member::Named(name.clone()),
        None => Member::Unnamed(Index {
            index: at as u32,
            span: Span::call_site(),
        }),
    };
    fields.iter().enumerate().map(numbered).collect()
}

/// Whether the struct is `repr(C)` or `repr(transparent)`.
fn has_fixed_layout(input: &DeriveInput) -> Result<bool, Error> {
    let mut is_fixed = false;
    for attribute in &input.attrs {
        if attribute.path().is_ident("repr") {
            attribute.parse_nested_meta(|meta| {
                is_fixed |= meta.path.is_ident("C") || meta.path.is_ident("transparent");
                if meta.input.peek(syn::token::Paren) {
                    let arguments;
                    syn::parenthesized!(arguments in meta.input);
                    arguments.parse::<TokenStream>()?;
                }
                Ok(())
            })?;
        }
    }
    Ok(is_fixed)
}
