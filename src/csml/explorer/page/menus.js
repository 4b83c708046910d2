// The menus in the head of the page: one is open at a time, and Escape or a click beside it closes it.
const menus = document.querySelectorAll(".menu");

export function startMenus() {
  for (const menu of menus) menu.addEventListener("toggle", () => { if (menu.open) closeMenus(menu); });
  document.addEventListener("pointerdown", (event) => closeMenus(event.target.closest(".menu")));
}

// Closes all but one; says whether there was one to close.
export function closeMenus(but = null) {
  const open = [...menus].filter((menu) => menu.open && menu !== but);
  for (const menu of open) {
    if (menu.contains(document.activeElement)) menu.querySelector("summary").focus();
    menu.open = false;
  }
  return open.length > 0;
}
